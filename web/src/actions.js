// What can be done to the page.
import { batch } from '@preact/signals'
import { wayOf } from './data/direction.js'
import {
  brush, curve, data, marks, only, query, said, score, selected, side, sorting, table, threshold, unsaved, wanted,
} from './state.js'
import { VERDICTS } from './verdicts.js'

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

/** Choose the threshold that answers the first so many rows of the curve. */
export function answerFirst(count) {
  threshold.value = wayOf(score.value) * (count ? curve.value.scores[count - 1] : Infinity)
}

const saved = new Map(data.marks) // what the server is known to have
let queue = Promise.resolve()

/** Mark a row, or take the same mark away. Marks are sent in the order in which they were made. */
export function mark(row, value) {
  const next = marks.value.get(row) === value ? null : value
  put(marks, row, next)
  queue = queue.then(() => save(row, next))
}

async function save(row, value) {
  try {
    const answer = await fetch('api/marks', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ row, mark: value }),
    }).catch(() => {
      throw new Error('the server does not answer. Is `credibly explore` still running?')
    })
    if (!answer.ok) throw new Error((await answer.text()) || `the server said ${answer.status}`)
    set(saved, row, value)
    unsaved.value = ''
    said.value = value ? `marked: ${value}` : 'mark removed'
  } catch (error) {
    if ((marks.value.get(row) ?? null) === value) put(marks, row, saved.get(row) ?? null)
    unsaved.value = `The mark of row ${row} was not saved: ${error.message}`
  }
}

function put(held, row, value) {
  const next = new Map(held.value)
  set(next, row, value)
  held.value = next
}

function set(map, row, value) {
  if (value === null) map.delete(row)
  else map.set(row, value)
}
