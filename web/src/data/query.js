// What is typed into the filter: `trust<0.5 predicted=Bag outlier`. Every part must hold; a part
// without a sign is looked for in all words, unless it is a whole number: then it is a row or an id.

const PART = /(?:(?:"([^"]*)"|([^\s"<>=!]+))\s*(<=|>=|!=|=|<|>)\s*)?(?:"([^"]*)"|(\S+))/gu

/** The parts of a query, each as { name, sign, text }; a wrong one as { error }. */
export function parse(text, kinds) {
  return [...text.matchAll(PART)].map(([, long, short, sign, quoted, bare]) => {
    const value = quoted ?? bare
    if (sign) return comparison(long ?? short, sign, value, kinds)
    return { sign: bare && /^\d+$/u.test(bare) ? 'row' : 'has', text: value.toLowerCase() }
  })
}

function comparison(name, sign, text, kinds) {
  if (!Object.hasOwn(kinds, name)) return { error: `there is no column ${name}` }
  if (kinds[name] !== 'words' && text !== '' && !Number.isFinite(Number(text)))
    return { error: `${name} is compared with a number, not “${text}”` }
  if (kinds[name] === 'words' && !['=', '!='].includes(sign))
    return { error: `${name} holds words: use ${name}=word` }
  return { name, sign, text }
}

/** The test of one part: a function from a row to true or false. */
export function testOf(part, columns) {
  if (part.error) return () => true
  if (part.sign === 'has') return hasText(part.text, columns)
  if (part.sign === 'row') return hasNumber(part.text, columns.id)
  const column = Object.hasOwn(columns, part.name) ? columns[part.name] : null
  if (!column) return () => true
  return column.kind === 'words' ? ofWords(part, column) : ofNumbers(part, column)
}

/** A missing word is neither equal to a word nor different from it; ="" finds it. */
function ofWords({ sign, text }, { codes, names }) {
  const wanted = text.toLowerCase()
  const equal = sign === '='
  const hit = names.map((name) => (name === '' && wanted !== '' ? false : (name.toLowerCase() === wanted) === equal))
  return (row) => hit[codes[row]]
}

function ofNumbers({ sign, text }, { values }) {
  if (text === '') return (row) => Number.isNaN(values[row]) === (sign === '=')
  const limit = Number(text)
  switch (sign) {
    case '<': return (row) => values[row] < limit
    case '<=': return (row) => values[row] <= limit
    case '>': return (row) => values[row] > limit
    case '>=': return (row) => values[row] >= limit
    case '=': return (row) => values[row] === limit
    default: return (row) => values[row] !== limit && !Number.isNaN(values[row])
  }
}

function hasNumber(text, id) {
  const number = Number(text)
  if (!id) return (row) => row === number
  if (id.kind === 'number') return (row) => row === number || id.values[row] === number
  const hit = id.names.map((name) => name.toLowerCase() === text)
  return (row) => row === number || hit[id.codes[row]]
}

function hasText(text, columns) {
  const found = Object.values(columns).filter((column) => column.kind === 'words')
  const hits = found.map((column) => [
    column.codes, column.names.map((name) => name.toLowerCase().includes(text)),
  ])
  return (row) => hits.some(([codes, hit]) => hit[codes[row]])
}
