/** A tab of a run that is a page of its own: its header stays live as long as the run has not ended. */

import { count, must } from "../lib/format.js";
import { show, showRun } from "./header.js";
import { pageSocket } from "../lib/socket.js";

const { run = "", lastSeq = "0" } = must(".run-header").dataset;

// What the events say is on the page already: it goes on from where it was drawn.
pageSocket().subscribe(run, Number(lastSeq), {
  run: showRun,
  events: (events) => {
    for (const event of events) {
      if (event.type === "checkpoint") show("checkpoint", `step ${count(event.step ?? 0)}`);
    }
  },
});
