// Numbers and shares in words.

export function number(given, digits = 3) {
  const value = typeof given === 'string' ? Number(given) : given // infinity, in JSON
  if (value === null || Number.isNaN(value)) return '–'
  if (Math.abs(value) === Infinity) return value > 0 ? '∞' : '-∞'
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value)
  const size = Math.abs(value)
  if (size >= 1e5 || size < 1e-3) return value.toExponential(2).replace('e+', 'e')
  return String(Number(value.toPrecision(digits)))
}

export function percent(share, digits = 1) {
  return Number.isNaN(share) ? '–' : `${(100 * share).toFixed(digits)} %`
}

const groups = new Intl.NumberFormat('en')

export function count(value) {
  return groups.format(value)
}
