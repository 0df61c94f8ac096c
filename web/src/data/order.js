// Orders of up to millions of numbers: a radix sort, since sorting with a comparison takes seconds.

/** Row numbers from the smallest to the largest value; NaN is last, equal values keep their order. */
export function orderOf(values) {
  const count = values.length
  const digits = new Uint16Array(sortable(values).buffer) // four of 16 bits per number
  let from = new Uint32Array(count)
  let to = new Uint32Array(count)
  for (let row = 0; row < count; row++) from[row] = row
  for (let digit = 0; digit < 4; digit++) {
    const starts = new Uint32Array(65537)
    for (let k = digit; k < digits.length; k += 4) starts[digits[k] + 1]++
    if (count && starts[digits[digit] + 1] === count) continue // all alike
    for (let k = 0; k < 65536; k++) starts[k + 1] += starts[k]
    for (let place = 0; place < count; place++) {
      const row = from[place]
      to[starts[digits[4 * row + digit]]++] = row
    }
    ;[from, to] = [to, from]
  }
  return from
}

/** The bits of each number, changed so that they sort as whole numbers: IEEE 754 with its sign. */
function sortable(values) {
  const floats = new Float64Array(values) // a copy
  const words = new Uint32Array(floats.buffer)
  for (let row = 0; row < floats.length; row++) {
    const high = 2 * row + 1
    if (Number.isNaN(floats[row])) words[high] = words[high - 1] = 0xffffffff
    else if (words[high] >>> 31) {
      words[high] = ~words[high]
      words[high - 1] = ~words[high - 1]
    } else words[high] |= 0x80000000
  }
  return floats
}

/** The same order the other way round; NaN stays last. */
export function descending(order, values) {
  let known = order.length
  while (known && Number.isNaN(values[order[known - 1]])) known--
  const found = new Uint32Array(order.length)
  for (let k = 0; k < known; k++) found[k] = order[known - 1 - k]
  found.set(order.subarray(known), known)
  return found
}
