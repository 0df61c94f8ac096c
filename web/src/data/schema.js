// The columns of a Parquet file that the page can show, from its schema.

const NUMERIC = new Set(['INT32', 'INT64', 'FLOAT', 'DOUBLE'])
const TIMES = new Set(['DATE', 'TIMESTAMP'])

/** Columns of the page itself; a file that has such names, too, keeps them to itself. */
const OWN = ['row', 'mark']

/** Whether each column holds numbers or words; lists and structures are left out. */
export function kindsOf([root, ...schema]) {
  const found = []
  let place = 0
  for (let left = root.num_children ?? 0; left > 0; left--) {
    const element = schema[place]
    if (!element.num_children && !OWN.includes(element.name)) found.push([element.name, kindOf(element)])
    place = after(schema, place)
  }
  return Object.fromEntries(found)
}

function kindOf({ type, logical_type: logical, converted_type: converted = '' }) {
  const time = TIMES.has(logical?.type) || TIMES.has(converted.split('_')[0])
  return NUMERIC.has(type) && !time ? 'number' : 'words'
}

/** The place after an element and everything inside it. */
function after(schema, place) {
  let next = place + 1
  for (let left = schema[place].num_children ?? 0; left > 0; left--) next = after(schema, next)
  return next
}
