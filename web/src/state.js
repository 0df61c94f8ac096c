// What the page shows: signals, and everything worked out from them.
import { batch, computed, effect, signal } from '@preact/signals'
import { extent, sortKeys, valueOf } from './data/columns.js'
import { answeredAt, FOREIGN, RIGHT, sweep, UNKNOWN, WRONG } from './data/curves.js'
import { DIRECTED, turned, wayOf } from './data/direction.js'
import { classesOf, matching } from './data/labels.js'
import { notesOf } from './data/notes.js'
import { descending, orderOf } from './data/order.js'
import { parse, testOf } from './data/query.js'
import { openStore } from './store.js'
import { ALARMS, codeOf, VERDICTS } from './verdicts.js'

export const data = JSON.parse(document.getElementById('data').textContent)

export const store = signal(null)
export const failure = signal('')
export const unsaved = signal('') // why a mark is not on the disk
export const loaded = signal({}) // columns by name
export const marks = signal(new Map(data.marks)) // row -> right, wrong or foreign

export const wanted = signal(new Set()) // verdicts; none means all
export const axes = signal(['trust', 'p_outlier'])
export const logs = signal(new Map()) // name of an axis -> whether it is logarithmic, where it was chosen
export const brush = signal(null) // { x: [low, high], y: [low, high] }
export const query = signal('')
export const side = signal('all') // of the threshold: all, answered, refused
export const only = signal('all') // all, marked, unmarked
export const sorting = signal({ name: null, down: false })
export const selected = signal(null)
export const score = signal('trust')
export const threshold = signal(null)
export const refusing = signal(true) // whether alarms are refused, whatever their score
export const theme = signal('system')
export const helping = signal(false)
export const said = signal('') // to a screen reader

const has = Object.hasOwn
const USUAL = ['verdict', 'predicted', 'label', 'id', 'trust', 'p_outlier', 'p_tampered', 'p_wrong']
const NEEDED = ['verdict', 'predicted', 'label'] // before anything can be shown, with the scores in use
const FEW = 100000 // rows of which also reasons are in the table

export async function open() {
  try {
    const found = await openStore(data)
    for (const name of ['verdict', 'predicted'])
      if (!has(found.kinds, name)) throw new Error(`the file has no column ${name}`)
    const have = (names) => [...new Set(names)].filter((name) => has(found.kinds, name))
    const columns = await found.load(have([...NEEDED, ...axes.peek(), score.peek(), 'trust']))
    batch(() => {
      loaded.value = columns
      store.value = found
      settle()
    })
    requestAnimationFrame(() => setTimeout(() => performance.mark('interactive'))) // once it is drawn
    const more = data.columns ? Object.keys(found.kinds) : [...USUAL, ...(data.extra ?? []), ...(found.rows <= FEW ? ['reason'] : [])]
    const rest = have(more).filter((name) => !has(columns, name))
    if (!rest.length) return
    const others = await found.load(rest)
    loaded.value = { ...loaded.value, ...others }
  } catch (error) {
    failure.value = error.message
  }
}

/** Let go of names and rows that these verdicts do not have: an address may hold any. */
export function settle() {
  if (!store.peek()) return
  const { kinds, rows } = store.peek()
  const [known, directed] = [scores.peek(), limits.peek()]
  axes.value = axes.peek().map((name, k) => (known.includes(name) ? name : known[k] ?? known[0]))
  if (!directed.includes(score.peek())) score.value = directed[0] ?? known[0]
  const { name } = sorting.peek()
  if (name && name !== 'mark' && !has(kinds, name)) sorting.value = { name: null, down: false }
  if (selected.peek() !== null && !(selected.peek() < rows)) selected.value = null
}

/** Columns of numbers, the usual scores first. */
export const scores = computed(() => {
  const names = Object.entries(store.value?.kinds ?? {})
    .filter(([name, kind]) => kind === 'number' && !['id', 'label', 'row', 'accepted'].includes(name))
    .map(([name]) => name)
  return [...names.filter((name) => USUAL.includes(name)), ...names.filter((name) => !USUAL.includes(name))]
})

/** Scores that can have a threshold. */
export const limits = computed(() => DIRECTED.filter((name) => scores.value.includes(name)))

/** See that a column is there; it comes later where it must be read. */
export async function need(name) {
  if (!store.value || has(loaded.value, name) || !has(store.value.kinds, name)) return
  try {
    const made = await store.value.load([name])
    loaded.value = { ...loaded.value, ...made }
  } catch (error) {
    failure.value = error.message
  }
}

/** A column of the file, or `row` and `mark`, which the page has itself. */
export const columnOf = (name) => (has(own, name) ? own[name].value : has(loaded.value, name) ? loaded.value[name] : undefined)
export const values = (name) => columnOf(name)?.values

/** The verdict of each row as a place in VERDICTS. */
export const codes = computed(() => {
  const column = loaded.value.verdict
  if (!column) return new Uint8Array(0)
  const places = column.names.map(codeOf)
  return Uint8Array.from(column.codes, (code) => places[code])
})

const alarm = computed(() => {
  const flags = VERDICTS.map((name) => (ALARMS.includes(name) ? 1 : 0))
  return codes.value.map((code) => flags[code])
})

/** How many labels there are, and how many of them name a class. */
export const labels = computed(() => {
  const { label, predicted } = loaded.value
  return label && predicted ? matching(label, classesOf(data.classes, predicted)) : { all: 0, good: 0 }
})

export const notes = computed(() => notesOf(labels.value, data.stale))

/** Whether each row is right: by its label, or by its mark, which is later. */
export const truth = computed(() => {
  const { label, predicted } = loaded.value
  if (!labels.value.good && !marks.value.size) return null
  const found = new Uint8Array(codes.value.length)
  if (labels.value.good)
    for (let row = 0; row < found.length; row++) {
      const [known, said] = [valueOf(label, row), valueOf(predicted, row)]
      if (known !== null && said !== null) found[row] = known === said ? RIGHT : WRONG
    }
  const kinds = { right: RIGHT, wrong: WRONG, foreign: FOREIGN }
  for (const [row, mark] of marks.value) found[row] = kinds[mark] ?? UNKNOWN
  return found
})

/** Whether any row, shown or not, is known to be right or wrong. */
export const anyKnown = computed(() => Boolean(truth.value?.some((kind) => kind === RIGHT || kind === WRONG)))

const MARKS = ['', 'right', 'wrong', 'does not belong']
const KINDS = ['', 'right', 'wrong', 'foreign'] // the same in short
const own = {
  row: computed(() => ({ kind: 'number', values: Float64Array.from(codes.value, (_, row) => row) })),
  mark: computed(() => {
    const found = new Uint32Array(codes.value.length)
    for (const [row, mark] of marks.value) found[row] = KINDS.indexOf(mark)
    return { kind: 'words', codes: found, names: MARKS }
  }),
}
const parts = computed(() => parse(query.value, { ...store.value?.kinds, row: 'number', mark: 'words' }))
export const queryError = computed(() => parts.value.find((part) => part.error)?.error ?? '')

effect(() => {
  for (const part of parts.value) if (part.name) need(part.name)
})

/** Rows that pass everything but the threshold. */
export const passing = computed(() => {
  const mask = new Uint8Array(codes.value.length).fill(1)
  if (wanted.value.size) {
    const good = VERDICTS.map((name) => wanted.value.has(name))
    for (let row = 0; row < mask.length; row++) if (!good[codes.value[row]]) mask[row] = 0
  }
  if (brush.value) {
    const [x, y] = axes.value.map(values)
    const { x: [left, right], y: [low, high] } = brush.value
    if (x && y)
      for (let row = 0; row < mask.length; row++)
        if (!(x[row] >= left && x[row] <= right && y[row] >= low && y[row] <= high)) mask[row] = 0
  }
  for (const part of parts.value) {
    const test = testOf(part, has(own, part.name ?? '') ? { [part.name]: columnOf(part.name) } : loaded.value)
    for (let row = 0; row < mask.length; row++) if (mask[row] && !test(row)) mask[row] = 0
  }
  if (only.value !== 'all') {
    const wantMarked = only.value === 'marked'
    for (let row = 0; row < mask.length; row++) if (marks.value.has(row) !== wantMarked) mask[row] = 0
  }
  return mask
})

const way = computed(() => wayOf(score.value))

export const alarmed = computed(() => alarm.value.includes(1))

/** The score of the threshold, turned so that high is good, and its rows from the lowest on. */
const ranked = computed(() => {
  const column = values(score.value)
  if (!column) return null
  const found = turned(column, way.value)
  if (refusing.value && alarmed.value) { // without a score a row is never answered, but it counts
    const flags = alarm.value
    const rest = Float64Array.from(found, (value, row) => (flags[row] ? NaN : value))
    return { values: rest, order: orderOf(rest) }
  }
  return { values: found, order: orderOf(found) }
})

export const curve = computed(() => ranked.value
  && sweep({ ...ranked.value, mask: passing.value, truth: truth.value, alarm: alarm.value }))

/** The threshold that was chosen, or the one that answers as many of all rows as are trusted now. */
export const limit = computed(() => {
  if (threshold.value !== null || !ranked.value) return threshold.value
  const { values: column, order } = ranked.value
  let known = column.length
  while (known && Number.isNaN(column[order[known - 1]])) known--
  if (!known) return null
  let trusted = 0
  for (let row = 0; row < codes.value.length; row++) if (codes.value[row] === 0) trusted++
  return way.value * (trusted ? column[order[Math.max(0, known - trusted)]] : Infinity)
})

/** How many rows are answered at the threshold. */
export const answered = computed(() => (curve.value && limit.value !== null ? answeredAt(curve.value, way.value * limit.value) : 0))

/** Rows that are shown, and how many. */
export const shown = computed(() => {
  let mask = passing.value
  if (side.value !== 'all' && limit.value !== null && ranked.value) {
    const { values: column } = ranked.value
    const [least, wantAnswered] = [way.value * limit.value, side.value === 'answered']
    mask = mask.slice()
    for (let row = 0; row < mask.length; row++)
      if (mask[row] && column[row] >= least !== wantAnswered) mask[row] = 0
  }
  let count = 0
  for (let row = 0; row < mask.length; row++) count += mask[row]
  return { mask, count }
})

/** Of each verdict: all rows, and those that are shown. */
export const counts = computed(() => {
  const all = VERDICTS.map(() => 0)
  const now = VERDICTS.map(() => 0)
  const { mask } = shown.value
  const places = codes.value
  for (let row = 0; row < places.length; row++) {
    all[places[row]]++
    now[places[row]] += mask[row]
  }
  return { all, now }
})

let orders = new Map()
const sorted = computed(() => {
  const { name, down } = sorting.value
  const column = name && columnOf(name)
  if (!column) return null
  const keys = sortKeys(column)
  if (!orders.has(column)) {
    if (orders.size > 6) orders = new Map()
    orders.set(column, orderOf(keys))
  }
  const up = orders.get(column)
  return down ? descending(up, keys) : up
})

/** The rows of the table, in its order. */
export const table = computed(() => {
  const { mask, count } = shown.value
  const order = sorted.value
  const rows = new Uint32Array(count)
  let place = 0
  for (let k = 0; k < mask.length; k++) {
    const row = order ? order[k] : k
    if (mask[row]) rows[place++] = row
  }
  return rows
})

export const bounds = computed(() => axes.value.map((name) => (values(name) ? extent(values(name)) : [0, 1])))

export const filtered = computed(() =>
  Boolean(wanted.value.size || brush.value || query.value.trim() || side.value !== 'all' || only.value !== 'all'))
