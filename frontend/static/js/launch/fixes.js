/** Buttons that put a proposed change of settings into the new-run form. */

import { make } from "../lib/format.js";

/**
 * @typedef {Record<string, string | number | boolean>} Settings
 * @typedef {{label: string, request: Record<string, Settings | Record<string, Settings>>}} Fix
 *   request: settings by section; those of `agents` by the agent's name
 */

/**
 * The form receives the event `fix`, with the chosen one in its `detail`.
 * @param {Fix[]} fixes
 */
export function fixButtons(fixes) {
  const row = make("div", "row");
  row.append(
    ...fixes.map((fix) => {
      const button = make("button", "button button-small", `Use ${fix.label}`);
      button.type = "button";
      button.addEventListener("click", () => button.dispatchEvent(new CustomEvent("fix", { bubbles: true, detail: fix })));
      return button;
    }),
  );
  return row;
}

/**
 * @param {Fix} fix
 * @returns {Settings} by the names of the form's controls, without those of agents
 */
export function settingsOf({ request }) {
  const sections = Object.entries(request).filter(([section]) => section !== "agents");
  const pairs = sections.flatMap(([section, own]) => Object.entries(own).map(([name, value]) => [`${section}.${name}`, value]));
  return Object.fromEntries(pairs);
}
