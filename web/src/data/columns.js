// A column is numbers, { kind: 'number', values: Float64Array }, where NaN is missing, or words,
// { kind: 'words', codes: Uint32Array, names: [...] }, where the name '' is missing.

export function numbers(values) {
  const found = new Float64Array(values.length)
  for (let row = 0; row < values.length; row++) found[row] = asNumber(values[row])
  return { kind: 'number', values: found }
}

export function asNumber(value) {
  if (value === null || value === undefined || value === '') return NaN
  return Number(value) // also of whole numbers with 64 bits, and of true and false
}

/** A value as a word; true and false as Python writes them, a date so that it sorts. */
function textOf(value) {
  if (value === null || value === undefined) return ''
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  if (value instanceof Date) return value.toISOString().replace('T', ' ').replace(/( 00:00:00)?\.000Z$/u, '')
  return String(value)
}

/** Gathers words as codes, a part at a time. */
export class Words {
  constructor(count) {
    this.codes = new Uint32Array(count)
    this.names = []
    this.known = new Map()
  }

  set(row, value) {
    const name = textOf(value)
    let code = this.known.get(name)
    if (code === undefined) {
      code = this.names.push(name) - 1
      this.known.set(name, code)
    }
    this.codes[row] = code
  }

  column() {
    return { kind: 'words', codes: this.codes, names: this.names }
  }
}

export function words(values) {
  const found = new Words(values.length)
  for (let row = 0; row < values.length; row++) found.set(row, values[row])
  return found.column()
}

/** The value of a row as it is shown: a number, a word, or null where it is missing. */
export function valueOf(column, row) {
  if (column.kind === 'words') return column.names[column.codes[row]] || null
  const value = column.values[row]
  return Number.isNaN(value) ? null : value
}

/** Numbers that sort as the column does; missing ones are NaN. */
export function sortKeys(column) {
  if (column.kind === 'number') return column.values
  const order = column.names.map((name, code) => [name, code])
  order.sort((a, b) => collator.compare(a[0], b[0]))
  const ranks = new Float64Array(column.names.length)
  order.forEach(([name, code], rank) => (ranks[code] = name === '' ? NaN : rank))
  return Float64Array.from(column.codes, (code) => ranks[code])
}

const collator = new Intl.Collator('en', { numeric: true })

/** Smallest and largest finite number. */
export function extent(values) {
  let low = Infinity
  let high = -Infinity
  for (let row = 0; row < values.length; row++) {
    const value = values[row]
    if (value < low && value > -Infinity) low = value
    if (value > high && value < Infinity) high = value
  }
  return low <= high ? [low, high] : [0, 1]
}
