/** What differs for single agents in this run: lines of a field that is sent, and the controls that write them. */

import { make, must } from "../lib/format.js";

/** @typedef {Record<string, unknown>} Settings by name; values as typed, or of JSON */

/**
 * @param {string} text one line for each agent: `NAME: setting = value; setting = value`, or `NAME: {JSON}`
 * @returns {Map<string, Settings>} without what cannot be read: the server says what is wrong there
 */
export function agentChanges(text) {
  const lines = text.split("\n").filter((line) => line.includes(":"));
  return new Map(lines.map((line) => [line.split(":", 1)[0].trim(), settingsOfLine(line.slice(line.indexOf(":") + 1).trim())]));
}

/** @param {string} text @returns {Settings} */
function settingsOfLine(text) {
  if (!text.startsWith("{")) {
    const pairs = text.split(";").filter((pair) => pair.includes("="));
    return Object.fromEntries(pairs.map((pair) => [pair.split("=", 1)[0].trim(), pair.slice(pair.indexOf("=") + 1).trim()]));
  }
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/**
 * @param {string} text
 * @param {string} agent
 * @param {Settings} settings put in place of those of the same names; undefined removes one
 * @returns {string} the text with the settings in the agent's line
 */
export function withSettings(text, agent, settings) {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const place = lines.findIndex((line) => line.split(":", 1)[0].trim() === agent);
  const before = place < 0 ? "" : lines[place].slice(lines[place].indexOf(":") + 1).trim();
  const merged = Object.entries({ ...settingsOfLine(before), ...settings }).filter(([, value]) => value !== undefined);
  const needsJson = before.startsWith("{") || merged.some(([, value]) => /[;={\n]/.test(String(value)));
  const pairs = needsJson ? JSON.stringify(Object.fromEntries(merged)) : merged.map(([name, value]) => `${name} = ${value}`).join("; ");
  lines.splice(place < 0 ? lines.length : place, place < 0 ? 0 : 1, ...(merged.length ? [`${agent}: ${pairs}`] : []));
  return lines.join("\n");
}

/** @returns {HTMLTextAreaElement} */
export function agentsField() {
  return /** @type {HTMLTextAreaElement} */ (must("#id-agents"));
}

/**
 * @param {string} agent
 * @param {Settings} settings
 */
export function changeAgent(agent, settings) {
  const field = agentsField();
  field.value = withSettings(field.value, agent, settings);
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

let edited = "";

/** Opens the settings of one agent, or closes them. @param {string} agent */
export function editAgent(agent) {
  edited = edited === agent ? "" : agent;
  showAgent(edited ? [edited] : []);
  /** @type {HTMLElement | null} */ (edited ? must("#agent-editor").querySelector("input") : null)?.focus();
}

/** The settings of the agent that is edited, as its line has them. @param {string[]} names the agents of the group */
export function showAgent(names) {
  const box = must("#agent-editor");
  box.hidden = !names.includes(edited);
  must("#agent-editor legend").textContent = `Override for ${edited}`;
  const own = agentChanges(agentsField().value).get(edited) ?? {};
  for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (box.querySelectorAll("[data-agent-setting]"))) {
    const value = own[input.dataset.agentSetting ?? ""];
    if (input !== document.activeElement) input.value = value === undefined ? "" : String(value);
    input.onchange = () => changeAgent(edited, { [input.dataset.agentSetting ?? ""]: input.value.trim() || undefined });
  }
}
