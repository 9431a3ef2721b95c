/** Short forms of names that are listed together. */

const NAME_WORDS = /[^\s,:/_-]+[\s,:/_-]*|[\s,:/_-]+/g;

/**
 * Names listed together, each with its own words, as `distinct_names` of hacrl_web/web/short_names.py: what all share
 * at their start, then at their end, becomes an ellipsis, if one of them is longer than `most` letters.
 * @param {string[]} names
 * @param {number} [most]
 */
export function distinctNames(names, most = 24) {
  const different = [...new Set(names)];
  if (different.length < 2 || different.every((name) => name.length <= most)) return names;
  const words = different.map((name) => name.match(NAME_WORDS) ?? []);
  const shared = (/** @type {string[][]} */ lists) => {
    const most = Math.max(0, Math.min(...lists.map((list) => list.length)) - 1);
    const at = Array.from({ length: most }, (_, place) => place).find((place) => lists.some((list) => list[place] !== lists[0][place]));
    return at ?? most;
  };
  const joined = (/** @type {string[]} */ list, /** @type {boolean} */ hasHead, /** @type {boolean} */ hasTail) =>
    `${hasHead ? "…" : ""}${list.join("").replace(/^[ ,:/_-]+|[ ,:/_-]+$/g, "")}${hasTail ? "…" : ""}`;
  const head = shared(words);
  const cuts = Array.from({ length: head }, (_, place) => words.map((list) => joined(list.slice(place + 1), true, false)));
  let short = cuts.find((names) => names.every((name) => name.length <= most)); // as many shared words stay as there is room for
  if (!short) {
    const rest = words.map((list) => list.slice(head));
    const tail = shared(rest.map((list) => [...list].reverse()));
    short = rest.map((list) => joined(list.slice(0, list.length - tail), head > 0, tail > 0));
  }
  const found = short;
  return new Set(found).size < different.length ? names : names.map((name) => found[different.indexOf(name)]);
}
