/** A chart as a file: its picture with title and legend, and the saving of what the page has made. */

import { colour } from "./paint.js";

const PAD = 16;
const ROW = 20;
const FONT = "Inter, system-ui, sans-serif";

/**
 * @param {Blob} content
 * @param {string} name of the file
 */
export function save(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * @param {HTMLCanvasElement} plot
 * @param {string} title
 * @param {{title: string, colour: string, dash: number[]}[]} lines
 * @param {string} note
 * @returns {Promise<Blob>} a PNG
 */
export function pictureOf(plot, title, lines, note) {
  const scale = devicePixelRatio;
  const canvas = document.createElement("canvas");
  const rows = lines.length + (note ? 1 : 0);
  canvas.width = plot.width + 2 * PAD * scale;
  canvas.height = plot.height + (2 * PAD + ROW * (rows + 1.5)) * scale;
  const context = canvas.getContext("2d");
  if (!context) return Promise.reject(new Error("this browser draws no pictures"));
  context.fillStyle = colour("--surface");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(plot, PAD * scale, (PAD + ROW * 1.5) * scale);
  context.scale(scale, scale);
  context.textBaseline = "middle";
  context.fillStyle = colour("--text");
  context.font = `600 14px ${FONT}`;
  context.fillText(title, PAD, PAD + ROW / 2);
  context.font = `12px ${FONT}`;
  let y = PAD + ROW * 2 + plot.height / scale;
  for (const line of lines) {
    context.strokeStyle = colour(line.colour);
    context.lineWidth = 2;
    context.setLineDash(line.dash);
    context.beginPath();
    context.moveTo(PAD, y);
    context.lineTo(PAD + 24, y);
    context.stroke();
    context.fillText(line.title, PAD + 32, y, canvas.width / scale - 2 * PAD - 32);
    y += ROW;
  }
  context.fillStyle = colour("--quiet");
  if (note) context.fillText(note, PAD, y, canvas.width / scale - 2 * PAD);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))), "image/png"));
}
