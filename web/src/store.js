// Where the rows come from: the page itself, or a Parquet file that is read by ranges.
import { parquetMetadataAsync, parquetRead } from 'hyparquet'
import { asNumber, numbers, words, Words } from './data/columns.js'
import { classesOf, labelsAsNames } from './data/labels.js'
import { kindsOf } from './data/schema.js'

export async function openStore(data) {
  const store = await (data.columns ? inPage(data) : inParquet(data))
  return Object.hasOwn(store.kinds, 'label') ? withNames(store, data.classes) : store
}

/** The same store, whose labels are names of classes whatever the file holds. */
function withNames(store, classes) {
  const load = async (names) => {
    if (!names.includes('label')) return store.load(names)
    const made = await store.load([...new Set([...names, 'predicted'])])
    return { ...made, label: labelsAsNames(made.label, classesOf(classes, made.predicted)) }
  }
  return { ...store, load, kinds: { ...store.kinds, label: 'words' } }
}

async function inPage({ rows, columns, details }) {
  const made = new Map(columns.map(({ name, kind, values }) =>
    [name, kind === 'words' ? words(values) : numbers(values)]))
  return {
    rows,
    kinds: Object.fromEntries([...made].map(([name, { kind }]) => [name, kind])),
    load: async (names) => Object.fromEntries(names.map((name) => [name, made.get(name)])),
    detail: async (row) => details[row] ?? null,
    known: (row) => Object.hasOwn(details, row),
  }
}

async function inParquet({ parquet, bytes, details }) {
  const file = ranges(parquet, bytes)
  const metadata = await parquetMetadataAsync(file)
  const rows = Number(metadata.num_rows)
  const kinds = kindsOf(metadata.schema)

  async function load(names) {
    const made = new Map(names.map((name) => [name, kinds[name] === 'number'
      ? { kind: 'number', values: new Float64Array(rows) } : new Words(rows)]))
    await parquetRead({
      file: file.through(metadata, names), metadata, columns: names,
      onChunk: ({ columnName, columnData, rowStart }) => fill(made.get(columnName), columnData, rowStart),
    })
    return Object.fromEntries([...made].map(([name, column]) => [name, column instanceof Words ? column.column() : column]))
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
    file, metadata, columns, rowStart: row, rowEnd: row + 1, rowFormat: 'object', useOffsetIndex: true,
    onComplete: (rows) => Object.assign(found, rows[0]),
  })
  return found
}

/** A file read by ranges: `direct` asks for the very bytes, `through` for all of some columns at once. */
function ranges(url, byteLength) {
  const slice = async (start, end = byteLength) => {
    const answer = await fetch(url, { headers: { Range: `bytes=${start}-${end - 1}` } })
    if (answer.status !== 206) throw new Error((await answer.text()) || `the server said ${answer.status}`)
    return answer.arrayBuffer()
  }
  return { byteLength, slice, through: (metadata, names) => ({ byteLength, slice: joined(spansOf(metadata, names), slice) }) }
}

const GAP = 1 << 18 // bytes that are read for nothing rather than asked for apart
const LONGEST = 1 << 22

/** Where the columns are in the file, as few ranges. */
export function spansOf({ row_groups: groups }, names) {
  const parts = groups.flatMap(({ columns }) => columns
    .map(({ meta_data: about }) => about)
    .filter(({ path_in_schema: path }) => names.includes(path[0]))
    .map((about) => {
      const start = Number(about.dictionary_page_offset ?? about.data_page_offset)
      return [start, start + Number(about.total_compressed_size)]
    }))
  parts.sort((a, b) => a[0] - b[0])
  const spans = []
  for (const [start, end] of parts) {
    const last = spans.at(-1)
    if (last && start - last[1] <= GAP && end - last[0] <= LONGEST) last[1] = Math.max(last[1], end)
    else spans.push([start, end])
  }
  return spans
}

/** Reads from ranges that are each asked for once; the rest of the file is asked for as it is. */
function joined(spans, slice) {
  const asked = new Map()
  return async (start, end) => {
    const span = spans.find(([first, last]) => first <= start && end <= last)
    if (!span) return slice(start, end)
    if (!asked.has(span)) asked.set(span, slice(...span))
    return (await asked.get(span)).slice(start - span[0], end - span[0])
  }
}
