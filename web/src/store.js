// Where the rows come from: the page itself, or a Parquet file that is read by ranges.
import { parquetMetadataAsync, parquetRead } from 'hyparquet'
import { asNumber, numbers, words, Words } from './data/columns.js'

const BLOCK = 1 << 20 // bytes asked for at a time

export function openStore(data) {
  return data.columns ? inPage(data) : inParquet(data)
}

async function inPage({ rows, columns, details }) {
  const made = {}
  for (const { name, kind, values } of columns)
    made[name] = kind === 'words' ? words(values) : numbers(values)
  return {
    rows,
    kinds: kindsOf(made),
    load: async (names) => Object.fromEntries(names.map((name) => [name, made[name]])),
    detail: async (row) => details[row] ?? null,
    known: (row) => row in details,
  }
}

function kindsOf(made) {
  return Object.fromEntries(Object.entries(made).map(([name, { kind }]) => [name, kind]))
}

const NUMERIC = new Set(['INT32', 'INT64', 'FLOAT', 'DOUBLE'])

async function inParquet({ parquet, bytes, details }) {
  const file = ranges(parquet, bytes)
  const metadata = await parquetMetadataAsync(file)
  const rows = Number(metadata.num_rows)
  const kinds = {}
  for (const { name, type, num_children: children } of metadata.schema.slice(1))
    if (!children) kinds[name] = NUMERIC.has(type) ? 'number' : 'words'

  async function load(names) {
    const made = {}
    for (const name of names)
      made[name] = kinds[name] === 'number'
        ? { kind: 'number', values: new Float64Array(rows) } : new Words(rows)
    await parquetRead({
      file, metadata, columns: names,
      onChunk: ({ columnName, columnData, rowStart }) => fill(made[columnName], columnData, rowStart),
    })
    file.forget()
    for (const name of names) if (made[name] instanceof Words) made[name] = made[name].column()
    return made
  }

  return {
    rows, kinds, load,
    known: () => details,
    detail: async (row, signal) => {
      if (!details) return null
      const answer = await fetch(`api/row/${row}`, { signal })
      if (!answer.ok) throw new Error((await answer.text()) || `the server said ${answer.status}`)
      return answer.json()
    },
    cells: (row, names) => oneRow(file, metadata, row, names),
  }
}

function fill(column, found, start) {
  if (column instanceof Words)
    for (let k = 0; k < found.length; k++) column.set(start + k, found[k])
  else if (found instanceof Float64Array || found instanceof Float32Array || found instanceof Int32Array)
    column.values.set(found, start)
  else for (let k = 0; k < found.length; k++) column.values[start + k] = asNumber(found[k])
}

/** Some values of one row; only the pages that hold it are read. */
async function oneRow(file, metadata, row, columns) {
  const found = {}
  await parquetRead({
    file: file.direct, metadata, columns, rowStart: row, rowEnd: row + 1, rowFormat: 'object', useOffsetIndex: true,
    onComplete: (rows) => Object.assign(found, rows[0]),
  })
  return found
}

/** A file read by ranges: `slice` asks for whole blocks once, `direct` for the very bytes. */
function ranges(url, byteLength) {
  let blocks = new Map()
  const ask = async (start, end) => {
    const answer = await fetch(url, { headers: { Range: `bytes=${start}-${end - 1}` } })
    if (answer.status !== 206) throw new Error((await answer.text()) || `the server said ${answer.status}`)
    return answer.arrayBuffer()
  }
  const block = (k) => {
    if (!blocks.has(k)) blocks.set(k, ask(k * BLOCK, Math.min((k + 1) * BLOCK, byteLength)))
    return blocks.get(k)
  }
  const slice = async (start, end = byteLength) => {
    const first = Math.floor(start / BLOCK)
    const last = Math.floor((end - 1) / BLOCK)
    if (first === last) return (await block(first)).slice(start - first * BLOCK, end - first * BLOCK)
    const parts = await Promise.all(Array.from({ length: last - first + 1 }, (_, k) => block(first + k)))
    const found = new Uint8Array(end - start)
    parts.forEach((part, k) => {
      const offset = (first + k) * BLOCK
      const [from, to] = [Math.max(start, offset), Math.min(end, offset + part.byteLength)]
      found.set(new Uint8Array(part, from - offset, to - from), from - start)
    })
    return found.buffer
  }
  return {
    byteLength, slice,
    direct: { byteLength, slice: (start, end = byteLength) => ask(start, end) },
    forget: () => (blocks = new Map()),
  }
}
