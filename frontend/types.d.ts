// The one library that pages load as a classic script and find on window.
interface Window {
  Plotly: {
    newPlot(element: HTMLElement, data: object[], layout: object, config: object): Promise<unknown>;
    restyle(element: HTMLElement, changes: object, traces?: number[]): Promise<unknown>;
    relayout(element: HTMLElement, changes: object): Promise<unknown>;
    downloadImage(element: HTMLElement, options: object): Promise<unknown>;
  };
}
