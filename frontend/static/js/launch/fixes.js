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

/**
 * @param {string} text of the field "Agents in this run"
 * @param {Fix} fix
 * @returns {string} the text with the settings of agents in the fix
 */
export function agentsText(text, { request }) {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  for (const [agent, settings] of Object.entries(request.agents ?? {})) {
    const place = lines.findIndex((line) => line.split(":", 1)[0].trim() === agent);
    const before = place < 0 ? "" : lines[place].slice(lines[place].indexOf(":") + 1).trim();
    const line = `${agent}: ${withSettings(before, /** @type {Settings} */ (settings))}`;
    lines.splice(place < 0 ? lines.length : place, place < 0 ? 0 : 1, line);
  }
  return lines.join("\n");
}

/**
 * @param {string} text the settings of one agent: JSON, or `name = value; name = value`
 * @param {Settings} settings
 */
function withSettings(text, settings) {
  if (text.startsWith("{")) return JSON.stringify({ ...JSON.parse(text), ...settings });
  const kept = text.split(";").filter((pair) => pair.trim() !== "" && !(pair.split("=", 1)[0].trim() in settings));
  return [...kept.map((pair) => pair.trim()), ...Object.entries(settings).map(([name, value]) => `${name} = ${value}`)].join("; ");
}
