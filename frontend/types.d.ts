// Types of what the pages load from static/vendor, which the launcher copies from node_modules.
declare module "*/vendor/uplot/uPlot.esm.js" {
  import uPlot from "uplot";
  export default uPlot;
}

interface Window {
  Plotly: {
    newPlot(element: HTMLElement, data: object[], layout: object, config: object): Promise<unknown>;
    relayout(element: HTMLElement, changes: object): Promise<unknown>;
  };
}
