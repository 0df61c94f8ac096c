// What is typed into the filter: `trust<0.5 predicted=Bag outlier`. Every part must hold; a part
// without a sign is looked for in all words, and is the number of a row if it is one.

const PART = /(?:([\w.]+)\s*(<=|>=|!=|=|<|>)\s*)?(?:"([^"]*)"|(\S+))/gu

/** The parts of a query, each as { name, sign, text }; a wrong one as { error }. */
export function parse(text, columns) {
  const parts = []
  for (const [, name, sign, quoted, bare] of text.matchAll(PART)) {
    const value = quoted ?? bare
    if (!name) parts.push({ sign: 'has', text: value.toLowerCase() })
    else if (!(name in columns)) parts.push({ error: `there is no column ${name}` })
    else if (columns[name] !== 'words' && value !== '' && !Number.isFinite(Number(value)))
      parts.push({ error: `${name} is compared with a number, not “${value}”` })
    else if (columns[name] === 'words' && !['=', '!='].includes(sign))
      parts.push({ error: `${name} holds words: use ${name}=word` })
    else parts.push({ name, sign, text: value })
  }
  return parts
}

/** The test of one part: a function from a row to true or false. */
export function testOf(part, columns) {
  if (part.error) return () => true
  if (part.sign === 'has') return hasText(part.text, columns)
  const column = columns[part.name]
  if (!column) return () => true
  if (column.kind === 'words') {
    const wanted = column.names.map((name) => name.toLowerCase() === part.text.toLowerCase())
    const equal = part.sign === '='
    return (row) => wanted[column.codes[row]] === equal
  }
  const [values, limit] = [column.values, Number(part.text)]
  switch (part.sign) {
    case '<': return (row) => values[row] < limit
    case '<=': return (row) => values[row] <= limit
    case '>': return (row) => values[row] > limit
    case '>=': return (row) => values[row] >= limit
    case '=': return (row) => values[row] === limit
    default: return (row) => values[row] !== limit
  }
}

function hasText(text, columns) {
  const found = Object.values(columns).filter((column) => column.kind === 'words')
  const hits = found.map((column) => [
    column.codes, column.names.map((name) => name.toLowerCase().includes(text)),
  ])
  const number = /^\d+$/u.test(text) ? Number(text) : -1
  return (row) => row === number || hits.some(([codes, hit]) => hit[codes[row]])
}
