// What the page shows: signals, everything worked out from them, and the address that keeps them.
import { batch, computed, effect, signal } from '@preact/signals'
import { extent, sortKeys, valueOf } from './data/columns.js'
import { answeredAt, FOREIGN, RIGHT, sweep, UNKNOWN, WRONG } from './data/curves.js'
import { descending, orderOf } from './data/order.js'
import { parse, testOf } from './data/query.js'
import { openStore } from './store.js'
import { ALARMS, VERDICTS } from './verdicts.js'

export const data = JSON.parse(document.getElementById('data').textContent)

export const store = signal(null)
export const failure = signal('')
export const loaded = signal({}) // columns by name
export const marks = signal(new Map()) // row -> right, wrong or foreign

export const wanted = signal(new Set()) // verdicts; none means all
export const axes = signal(['trust', 'p_outlier'])
export const brush = signal(null) // { x: [low, high], y: [low, high] }
export const query = signal('')
export const side = signal('all') // of the threshold: all, answered, refused
export const only = signal('all') // all, marked, unmarked
export const sorting = signal({ name: null, down: false })
export const selected = signal(null)
export const score = signal('trust')
export const threshold = signal(null)
export const theme = signal('system')
export const helping = signal(false)
export const said = signal('') // to a screen reader

const USUAL = ['verdict', 'predicted', 'label', 'id', 'trust', 'p_outlier', 'p_tampered', 'p_wrong']
const NEEDED = ['verdict', 'predicted', 'label'] // before anything can be shown, with the scores in use
const FEW = 100000 // rows of which also reasons are in the table

export async function open() {
  try {
    const found = await openStore(data)
    for (const name of ['verdict', 'predicted'])
      if (!(name in found.kinds)) throw new Error(`the file has no column ${name}`)
    const have = (names) => [...new Set(names)].filter((name) => name in found.kinds)
    const columns = await found.load(have([...NEEDED, ...axes.peek(), score.peek(), 'trust']))
    batch(() => {
      loaded.value = columns
      store.value = found
      const scored = scores.peek()
      axes.value = axes.peek().map((name, k) => (scored.includes(name) ? name : scored[k] ?? scored[0]))
      if (!scored.includes(score.peek())) score.value = scored[0]
      marks.value = new Map((data.marks ?? []).map(([row, mark]) => [row, mark]))
      if (selected.peek() !== null && !(selected.peek() < found.rows)) selected.value = null
    })
    requestAnimationFrame(() => setTimeout(() => performance.mark('interactive'))) // once it is drawn
    const more = data.columns ? Object.keys(found.kinds) : [...USUAL, ...(data.extra ?? []), ...(found.rows <= FEW ? ['reason'] : [])]
    const rest = have(more).filter((name) => !(name in columns))
    if (!rest.length) return
    const others = await found.load(rest)
    loaded.value = { ...loaded.value, ...others }
  } catch (error) {
    failure.value = error.message
  }
}

/** Columns of numbers, the usual scores first. */
export const scores = computed(() => {
  const names = Object.entries(store.value?.kinds ?? {})
    .filter(([name, kind]) => kind === 'number' && !['id', 'label', 'row', 'accepted'].includes(name))
    .map(([name]) => name)
  return [...names.filter((name) => USUAL.includes(name)), ...names.filter((name) => !USUAL.includes(name))]
})

/** See that a column is there; it comes later where it must be read. */
export async function need(name) {
  if (!store.value || name in loaded.value || !(name in store.value.kinds)) return
  try {
    const made = await store.value.load([name])
    loaded.value = { ...loaded.value, ...made }
  } catch (error) {
    failure.value = error.message
  }
}

export const values = (name) => loaded.value[name]?.values

/** The verdict of each row as a place in VERDICTS. */
export const codes = computed(() => {
  const column = loaded.value.verdict
  if (!column) return new Uint8Array(0)
  const places = column.names.map((name) => Math.max(0, VERDICTS.indexOf(name)))
  return Uint8Array.from(column.codes, (code) => places[code])
})

const alarm = computed(() => {
  const flags = VERDICTS.map((name) => (ALARMS.includes(name) ? 1 : 0))
  return codes.value.map((code) => flags[code])
})

/** Whether each row is right: by its label, or by its mark, which is later. */
export const truth = computed(() => {
  const { label, predicted } = loaded.value
  if (!label && !marks.value.size) return null
  const found = new Uint8Array(codes.value.length)
  if (label && predicted)
    for (let row = 0; row < found.length; row++) {
      const known = valueOf(label, row)
      const said = predicted.names[predicted.codes[row]]
      if (known !== null && said !== '') found[row] = String(known) === said ? RIGHT : WRONG
    }
  const kinds = { right: RIGHT, wrong: WRONG, foreign: FOREIGN }
  for (const [row, mark] of marks.value) found[row] = kinds[mark] ?? UNKNOWN
  return found
})

const parts = computed(() => parse(query.value, store.value?.kinds ?? {}))
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
    const test = testOf(part, loaded.value)
    for (let row = 0; row < mask.length; row++) if (mask[row] && !test(row)) mask[row] = 0
  }
  if (only.value !== 'all') {
    const wantMarked = only.value === 'marked'
    for (let row = 0; row < mask.length; row++) if (marks.value.has(row) !== wantMarked) mask[row] = 0
  }
  return mask
})

const scoreOrder = computed(() => {
  const column = values(score.value)
  return column ? orderOf(column) : null
})

export const curve = computed(() => {
  const column = values(score.value)
  if (!column || !scoreOrder.value) return null
  return sweep({
    order: scoreOrder.value, values: column, mask: passing.value, truth: truth.value, alarm: alarm.value,
  })
})

/** The threshold that was chosen, or the one that answers as many of all rows as are trusted now. */
export const limit = computed(() => {
  const column = values(score.value)
  if (threshold.value !== null || !column || !scoreOrder.value) return threshold.value
  let trusted = 0
  for (let row = 0; row < codes.value.length; row++) if (codes.value[row] === 0) trusted++
  let known = column.length
  while (known && Number.isNaN(column[scoreOrder.value[known - 1]])) known--
  return known ? column[scoreOrder.value[Math.min(known - 1, Math.max(0, known - trusted))]] : null
})

/** How many rows are answered at the threshold. */
export const answered = computed(() => (curve.value && limit.value !== null ? answeredAt(curve.value, limit.value) : 0))

/** Rows that are shown, and how many. */
export const shown = computed(() => {
  let mask = passing.value
  const column = values(score.value)
  if (side.value !== 'all' && limit.value !== null && column) {
    const wantAnswered = side.value === 'answered'
    mask = mask.slice()
    for (let row = 0; row < mask.length; row++)
      if (mask[row] && column[row] >= limit.value !== wantAnswered) mask[row] = 0
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
  const column = name === 'mark' ? marksColumn.value : loaded.value[name]
  if (!column) return null
  const keys = sortKeys(column)
  if (!orders.has(column)) {
    if (orders.size > 6) orders = new Map()
    orders.set(column, orderOf(keys))
  }
  const up = orders.get(column)
  return down ? descending(up, keys) : up
})

const marksColumn = computed(() => {
  const values = new Float64Array(codes.value.length).fill(NaN)
  for (const [row, mark] of marks.value) values[row] = ['right', 'wrong', 'foreign'].indexOf(mark)
  return { kind: 'number', values }
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

export function clearFilters() {
  batch(() => {
    wanted.value = new Set()
    brush.value = null
    query.value = ''
    side.value = 'all'
    only.value = 'all'
  })
}

export function toggleVerdict(name) {
  const next = new Set(wanted.value)
  if (!next.delete(name)) next.add(name)
  wanted.value = next.size === VERDICTS.length ? new Set() : next
}

export function sortBy(name) {
  const { name: now, down } = sorting.value
  if (now !== name) sorting.value = { name, down: false }
  else sorting.value = down ? { name: null, down: false } : { name, down: true }
}

/** Go to the row so many places further in the table. */
export function move(steps) {
  const rows = table.value
  if (!rows.length) return
  const place = selected.value === null ? -1 : rows.indexOf(selected.value)
  const start = steps > 0 ? 0 : rows.length - 1
  const next = place < 0 && Number.isFinite(steps) ? start : Math.min(rows.length - 1, Math.max(0, Math.max(0, place) + steps))
  selected.value = rows[next]
}

/** Go to a row without a mark that chance picks among those shown. */
export function moveByChance() {
  const free = table.value.filter((row) => !marks.value.has(row))
  if (free.length) selected.value = free[Math.floor(Math.random() * free.length)]
}

export async function mark(row, value) {
  const next = new Map(marks.value)
  const same = next.get(row) === value
  if (same) next.delete(row)
  else next.set(row, value)
  const before = marks.value
  marks.value = next
  try {
    const answer = await fetch('api/marks', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ row, mark: same ? null : value }),
    })
    if (!answer.ok) throw new Error((await answer.text()) || `the server said ${answer.status}`)
    said.value = same ? 'mark removed' : `marked: ${value}`
  } catch (error) {
    marks.value = before
    said.value = `not saved: ${error.message}`
  }
}

// the address: #x=trust&y=p_outlier&v=outlier,tampered&row=3

const round = (value) => Number(value.toPrecision(6))

export function toAddress() {
  const found = new URLSearchParams()
  const put = (name, value) => value !== null && value !== '' && found.set(name, value)
  put('v', [...wanted.value].join(','))
  if (axes.value.join() !== 'trust,p_outlier') put('xy', axes.value.join(','))
  put('brush', brush.value ? [...brush.value.x, ...brush.value.y].map(round).join(',') : '')
  put('q', query.value)
  put('side', side.value === 'all' ? '' : side.value)
  put('only', only.value === 'all' ? '' : only.value)
  put('sort', sorting.value.name ? `${sorting.value.down ? '-' : ''}${sorting.value.name}` : '')
  put('score', score.value === 'trust' ? '' : score.value)
  put('t', threshold.value === null ? '' : round(threshold.value))
  put('row', selected.value)
  put('theme', theme.value === 'system' ? '' : theme.value)
  return found.toString()
}

export function fromAddress(text) {
  const found = new URLSearchParams(text)
  const get = (name) => found.get(name) ?? ''
  const choice = (name, allowed) => (allowed.includes(get(name)) ? get(name) : allowed[0])
  const whole = /^\d+$/u.test(get('row')) ? Number(get('row')) : null
  const box = get('brush').split(',').map(Number)
  const pair = get('xy').split(',')
  batch(() => {
    wanted.value = new Set(get('v').split(',').filter((name) => VERDICTS.includes(name)))
    axes.value = pair.length === 2 ? pair : ['trust', 'p_outlier']
    brush.value = box.length === 4 && box.every(Number.isFinite) ? { x: box.slice(0, 2), y: box.slice(2) } : null
    query.value = get('q')
    side.value = choice('side', ['all', 'answered', 'refused'])
    only.value = choice('only', ['all', 'marked', 'unmarked'])
    sorting.value = { name: get('sort').replace(/^-/u, '') || null, down: get('sort').startsWith('-') }
    score.value = get('score') || 'trust'
    threshold.value = get('t') && Number.isFinite(Number(get('t'))) ? Number(get('t')) : null
    selected.value = whole !== null && (!store.value || whole < store.value.rows) ? whole : null
    theme.value = choice('theme', ['system', 'light', 'dark'])
  })
}

export function keepAddress() {
  fromAddress(location.hash.slice(1))
  let timer = 0
  effect(() => {
    const text = toAddress()
    clearTimeout(timer)
    timer = setTimeout(() => {
      try {
        if (text !== location.hash.slice(1)) history.replaceState(null, '', text ? `#${text}` : ' ')
      } catch {
        // a frame of a notebook has no address of its own
      }
    }, 150)
  })
  addEventListener('hashchange', () => fromAddress(location.hash.slice(1)))
  effect(() => {
    if (theme.value === 'system') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = theme.value
  })
  effect(() => {
    for (const name of [...axes.value, score.value, sorting.value.name]) if (name) need(name)
  })
}
