// Draw many points as pixels: each is a small coverage mask, blended into the picture. Half a million take tens of
// milliseconds; the same number of canvas calls takes seconds.

const SHAPES = ["circle", "triangle", "square", "diamond"];
// Subpixel positions of the masks, across and down.
const SUB = 4;

function inside(shape, x, y, r) {
  // All have about the same area.
  if (shape === 0) return x * x + y * y <= r * r;
  if (shape === 1) return y <= 0.78 * r && y >= -1.1 * r && Math.abs(x) <= (y + 1.1 * r) * 0.64;
  if (shape === 2) return Math.abs(x) <= 0.87 * r && Math.abs(y) <= 0.87 * r;
  return Math.abs(x) + Math.abs(y) <= 1.25 * r;
}

// Masks of each shape at each subpixel position: for each covered pixel its offset in a picture of this width, and its
// coverage out of 256.
function masksOf(radius, alpha, width) {
  const reach = Math.ceil(radius * 1.3 + 0.5), fine = 5;
  const shapes = SHAPES.map((_, shape) => {
    const masks = [];
    for (let sub = 0; sub < SUB * SUB; sub++) {
      const cx = ((sub % SUB) + 0.5) / SUB, cy = (Math.floor(sub / SUB) + 0.5) / SUB, mask = [];
      for (let y = -reach; y <= reach; y++) for (let x = -reach; x <= reach; x++) {
        let hits = 0;
        for (let v = 0; v < fine; v++) for (let u = 0; u < fine; u++) {
          if (inside(shape, x + (u + 0.5) / fine - cx, y + (v + 0.5) / fine - cy, radius)) hits++;
        }
        const part = Math.round((256 * alpha * hits) / (fine * fine));
        if (part) mask.push(y * width + x, part);
      }
      masks.push(Int32Array.from(mask));
    }
    return masks;
  });
  return { shapes, reach };
}

// Blend a colour into pixels; red and blue share one number, green has its own.
function stamp(pixels, mask, at, redBlue, green) {
  for (let m = 0; m < mask.length; m += 2) {
    const p = at + mask[m], a = mask[m + 1], rest = 256 - a, old = pixels[p];
    const rb = ((Math.imul(old & 0xff00ff, rest) + Math.imul(redBlue, a)) >>> 8) & 0xff00ff;
    const g = ((Math.imul(old & 0xff00, rest) + Math.imul(green, a)) >>> 8) & 0xff00;
    pixels[p] = 0xff000000 | rb | g;
  }
}

// Draw the first samples, in drawing order, whose style is visible. `where` maps u in [0, 1] to pixels: x = ax u + bx.
// `chosen` are flags; only samples with the flag `wanted` are drawn. null draws all.
function rasterise(pixels, width, height, set, where, limit, masks, halo, back, chosen, wanted) {
  const { ux, uy, cls } = set, { ax, bx, ay, by } = where, { r, g, b, shape, seen } = set.look;
  const room = Math.max(masks.reach, halo ? halo.reach : 0);
  const left = Math.max(where.left, room), right = Math.min(where.right, width - room - 1);
  const top = Math.max(where.top, room), bottom = Math.min(where.bottom, height - room - 1);
  const redBlue = Int32Array.from(r, (red, c) => red | (b[c] << 16)), green = Int32Array.from(g, (v) => v << 8);
  const backRedBlue = back[0] | (back[2] << 16), backGreen = back[1] << 8;
  for (let i = 0; i < limit; i++) {
    const c = cls[i];
    if (seen[c] === 0 || (chosen !== null && chosen[i] !== wanted)) continue;
    const x = ax * ux[i] + bx, y = ay * uy[i] + by;
    // NaN fails both comparisons.
    if (!(x >= left && x <= right && y >= top && y <= bottom)) continue;
    const ix = x | 0, iy = y | 0, sub = (((y - iy) * SUB) | 0) * SUB + (((x - ix) * SUB) | 0), at = iy * width + ix;
    if (halo !== null) stamp(pixels, halo.shapes[shape[c]][sub], at, backRedBlue, backGreen);
    stamp(pixels, masks.shapes[shape[c]][sub], at, redBlue[c], green[c]);
  }
}

const RAMP = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121],
  [110, 206, 88], [181, 222, 43], [253, 231, 37]];

// Without the end that has too little contrast to the background.
function rampColour(t, dark) {
  const part = dark ? 0.16 + 0.84 * t : 0.94 * t;
  const at = Math.min(Math.max(part, 0), 1) * (RAMP.length - 1), i = Math.min(Math.floor(at), RAMP.length - 2);
  return RAMP[i].map((low, c) => Math.round(low + (at - i) * (RAMP[i + 1][c] - low)));
}

// Okabe and Ito's palette and four more colours, for a light and a dark background.
const COLOURS = [
  ["#0072b2", "#2f94d1"], ["#e69f00", "#e69f00"], ["#009e73", "#1fb58b"], ["#cc79a7", "#d68cb5"],
  ["#56b4e9", "#8bd0f7"], ["#d55e00", "#e8702a"], ["#4a4e52", "#c3c7cb"], ["#d8c51f", "#f0e442"],
  ["#7b4fa3", "#a580cc"], ["#8c5a2b", "#b98352"], ["#7a9a01", "#a3c42d"], ["#b3003c", "#ea4f7f"],
];
const SHADES = [[0, 0], [255, 0.45], [0, 0.3], [255, 0.7]];
const LOOKS = COLOURS.length * SHAPES.length;
const hex = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
const greyOf = (dark) => (dark ? [96, 102, 108] : [176, 180, 184]);

// A fixed random drawing order, so that no group covers the others.
function shuffled(n) {
  const order = new Uint32Array(n);
  let seed = 12345;
  for (let i = 0; i < n; i++) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((seed / 4294967296) * (i + 1));
    order[i] = order[j];
    order[j] = i;
  }
  return order;
}
