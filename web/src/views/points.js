// Draws up to millions of points: each verdict has a shape; a verdict with few rows gets larger ones.
import { SHAPES, VERDICTS } from '../verdicts.js'

const MASKS = {
  3: {
    trust: '.#. ### .#.', doubtful: '### ### ###', outlier: '.#. ### ###', tampered: '#.# .#. #.#', unusable: '.#. #.# .#.',
  },
  5: {
    trust: '.###. ##### ##### ##### .###.', doubtful: '##### ##### ##### ##### #####',
    outlier: '..#.. .###. .###. ##### #####', tampered: '#...# ##.## .###. ##.## #...#',
    unusable: '..#.. .#.#. #...# .#.#. ..#..',
  },
}
const FEW = 4000
const SOME = 60000

/** Where each row is in a picture of this size; -1 where it has no place. */
export function project(values, [low, high], log, size, flip) {
  const places = new Int32Array(values.length)
  const scale = scaleOf([low, high], log)
  for (let row = 0; row < values.length; row++) {
    const share = scale(values[row])
    const held = share < 0 ? 0 : share > 1 ? 1 : share // infinity lies on the edge
    places[row] = held >= 0 ? Math.round((flip ? 1 - held : held) * (size - 1)) : -1
  }
  return places
}

/** From a value to its share of the axis. */
export function scaleOf([low, high], log) {
  if (!log) return (value) => (value - low) / (high - low || 1)
  const [first, last] = [Math.log10(low), Math.log10(high)]
  return (value) => (Math.log10(value) - first) / (last - first || 1)
}

export function valueAt([low, high], log, share) {
  if (!log) return low + share * (high - low)
  return 10 ** (Math.log10(low) + share * (Math.log10(high) - Math.log10(low)))
}

/** Paint all rows: those outside the mask faintly and first, rare verdicts last. */
export function paint(canvas, { px, py, codes, mask, colors, ratio }) {
  const { width, height } = canvas
  const context = canvas.getContext('2d')
  const image = context.createImageData(width, height)
  const pixels = new Uint32Array(image.data.buffer)
  const faint = packed(colors.faint)
  const dot = offsets('#', Math.max(2, Math.round(ratio) + 1), width)
  const groups = grouped(codes)
  const sizes = groups.map((rows) => {
    let size = 0
    for (let k = 0; k < rows.length; k++) {
      const row = rows[k]
      if (mask[row]) size++
      else if (px[row] >= 0 && py[row] >= 0) stamp(pixels, dot, px[row], py[row], width, height, faint)
    }
    return size
  })
  const large = []
  VERDICTS.forEach((name, code) => {
    if (!sizes[code]) return
    if (sizes[code] <= FEW) {
      large.push(code)
      return
    }
    const shape = offsets(MASKS[sizes[code] <= SOME ? 5 : 3][name], Math.max(1, Math.round(ratio)), width)
    const ink = packed(colors[name])
    const rows = groups[code]
    for (let k = 0; k < rows.length; k++) {
      const row = rows[k]
      if (mask[row] && px[row] >= 0 && py[row] >= 0) stamp(pixels, shape, px[row], py[row], width, height, ink)
    }
  })
  context.putImageData(image, 0, 0)
  for (const code of large) {
    const sprite = spriteOf(VERDICTS[code], colors, ratio)
    const half = sprite.width / 2
    for (const row of groups[code])
      if (mask[row] && px[row] >= 0 && py[row] >= 0) context.drawImage(sprite, px[row] - half, py[row] - half)
  }
}

let known = { codes: null, groups: [] }

/** The rows of each verdict. */
function grouped(codes) {
  if (known.codes === codes) return known.groups
  const sizes = new Uint32Array(VERDICTS.length)
  for (let row = 0; row < codes.length; row++) sizes[codes[row]]++
  const groups = Array.from(sizes, (size) => new Uint32Array(size))
  sizes.fill(0)
  for (let row = 0; row < codes.length; row++) groups[codes[row]][sizes[codes[row]]++] = row
  known = { codes, groups }
  return groups
}

function stamp(pixels, { places, reach, inner }, x, y, width, height, ink) {
  if (x < reach || y < reach || x >= width - reach || y >= height - reach) {
    for (const [dx, dy] of places) {
      const [left, top] = [x + dx, y + dy]
      if (left >= 0 && top >= 0 && left < width && top < height) pixels[top * width + left] = ink
    }
    return
  }
  const centre = y * width + x
  for (let k = 0; k < inner.length; k++) pixels[centre + inner[k]] = ink
}

/** The pixels of a shape, around its centre. */
function offsets(mask, scale, width) {
  const rows = mask.split(' ')
  const middle = Math.floor((rows.length * scale) / 2)
  const places = []
  rows.forEach((line, y) => [...line].forEach((sign, x) => {
    if (sign !== '#') return
    for (let dy = 0; dy < scale; dy++)
      for (let dx = 0; dx < scale; dx++) places.push([x * scale + dx - middle, y * scale + dy - middle])
  }))
  return { places, reach: middle + scale, inner: Int32Array.from(places, ([dx, dy]) => dy * width + dx) }
}

function spriteOf(name, colors, ratio) {
  const sprite = document.createElement('canvas')
  sprite.width = sprite.height = Math.round(11 * ratio)
  const context = sprite.getContext('2d')
  context.scale(sprite.width / 12, sprite.width / 12)
  const shape = new Path2D(SHAPES[name])
  context.lineWidth = 1
  context.strokeStyle = colors.page
  context.fillStyle = colors[name]
  context.globalAlpha = 0.9
  context.fill(shape, 'evenodd')
  context.stroke(shape)
  return sprite
}

/** A colour as the number that image data hold. */
function packed(text) {
  const context = document.createElement('canvas').getContext('2d')
  context.fillStyle = text
  context.fillRect(0, 0, 1, 1)
  return new Uint32Array(context.getImageData(0, 0, 1, 1).data.buffer)[0]
}

/** The shown row nearest to a place, at most `reach` away; null if there is none. */
export function nearestRow({ px, py, mask }, x, y, reach) {
  let [best, found] = [reach * reach, null]
  for (let row = 0; row < px.length; row++) {
    if (!mask[row] || px[row] < 0 || py[row] < 0) continue
    const gap = (px[row] - x) ** 2 + (py[row] - y) ** 2
    if (gap <= best) [best, found] = [gap, row]
  }
  return found
}

/** Round values along an axis, and how each is written. */
export function ticks([low, high], log) {
  if (log) {
    const found = []
    const step = Math.max(1, Math.round((Math.log10(high) - Math.log10(low)) / 5))
    for (let power = Math.ceil(Math.log10(low)); 10 ** power <= high * 1.0001; power += step) found.push(10 ** power)
    return found
  }
  const rough = (high - low) / 5 || 1
  const unit = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((k) => k * unit).find((one) => one >= rough)
  const found = []
  for (let k = Math.ceil(low / step); k * step <= high + 1e-9 * step; k++) found.push(k * step)
  return found
}
