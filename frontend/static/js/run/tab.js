/** A tab of a run on a separate page: its header stays live until the run ends. */

import { must } from "../lib/format.js";
import { showCheckpoint, showRun } from "./header.js";
import { pageSocket } from "../lib/socket.js";

const { run = "", lastSeq = "0" } = must(".run-header").dataset;

// The page already shows the events so far: the socket continues from there.
pageSocket().subscribe(run, Number(lastSeq), {
  run: showRun,
  events: (events) => {
    for (const event of events) {
      if (event.type === "checkpoint") showCheckpoint(event.step);
    }
  },
});
