// The rows that are shown. Only those in sight are in the page, however many there are.
import { useEffect, useRef, useState } from 'preact/hooks'
import { valueOf } from '../data/columns.js'
import { count, number } from '../format.js'
import { move, sortBy } from '../actions.js'
import * as state from '../state.js'
import { Badge, useSize } from './parts.jsx'

const HEIGHT = 30
const MOST = 8_000_000 // pixels that a scrolled element may have, with room to spare
const SIGNS = { right: '✓', wrong: '✗', 'does not belong': '⊘' }
const WIDTHS = new Map(Object.entries({ row: 76, verdict: 116, predicted: 130, label: 130, id: 130, p_tampered: 122, reason: 320, mark: 150 }))

export function columnsOf() {
  const have = state.loaded.value
  const used = [...state.axes.value, state.score.value, state.sorting.value.name]
  const base = ['verdict', 'predicted', 'label', ...(state.data.extra ?? []), 'id', 'trust', 'p_outlier', 'p_tampered', 'p_wrong']
  const extra = Object.keys(have).filter((name) => !base.includes(name) && name !== 'reason' && (used.includes(name) || state.query.value.includes(name)))
  const found = ['row', ...[...base, ...extra].filter((name) => Object.hasOwn(have, name))]
  if (state.columnOf('id') && sameAsRow(have.id)) found.splice(found.indexOf('id'), 1)
  if (state.data.marking || state.marks.value.size) found.push('mark')
  if (state.columnOf('reason')) found.push('reason')
  return found
}

const plainIds = new WeakMap()
function sameAsRow(column) {
  if (!plainIds.has(column)) plainIds.set(column, column.kind === 'number' && column.values.every((value, row) => value === row))
  return plainIds.get(column)
}

export function Table() {
  const [place, size] = useSize()
  const [top, setTop] = useState(0)
  const body = useRef(null)
  const rows = state.table.value
  const names = columnsOf()
  const full = rows.length * HEIGHT
  const held = Math.min(full, MOST)
  const room = Math.max(1, size.height - HEIGHT)
  const squeeze = full > held ? (full - room) / Math.max(1, held - room) : 1
  const first = Math.max(0, Math.floor((top * squeeze) / HEIGHT) - 4)
  const last = Math.min(rows.length, first + Math.ceil(room / HEIGHT) + 9)
  const chosen = state.selected.value
  const widths = names.map((name) => WIDTHS.get(name) ?? (state.columnOf(name)?.kind === 'words' ? 130 : 96))
  const grid = {
    gridTemplateColumns: widths.map((wide, k) => (k === widths.length - 1 ? `minmax(${wide}px, 1fr)` : `${wide}px`)).join(' '),
    minWidth: `${widths.reduce((sum, wide) => sum + wide)}px`,
  }

  useEffect(() => {
    if (chosen === null || !size.height) return
    const where = rows.indexOf(chosen)
    if (where < 0) return
    const scroll = place.current
    const offset = (where * HEIGHT) / squeeze
    if (offset < scroll.scrollTop) scroll.scrollTop = offset
    else if (offset + HEIGHT > scroll.scrollTop + room) scroll.scrollTop = offset + HEIGHT - room + 2
  }, [chosen, rows, size.height])

  const visible = Array.from(rows.subarray(first, last))
  return (
    <section class="card rows" aria-label="Rows">
      <div class="table" ref={place} role="grid" aria-rowcount={rows.length + 1} aria-colcount={names.length} tabIndex={0}
        aria-label="Rows that pass the filters" aria-activedescendant={chosen !== null && visible.includes(chosen) ? `row-${chosen}` : undefined}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)} onKeyDown={keys}>
        <div class="head" role="row" aria-rowindex={1} style={grid}>
          {names.map((name, k) => <Head key={name} name={name} k={k} />)}
        </div>
        <div class="body" role="rowgroup" ref={body} style={{ height: `${held}px` }}>
          <div role="presentation" style={{ transform: `translateY(${squeeze === 1 ? first * HEIGHT : top - (top * squeeze - first * HEIGHT)}px)` }}>
            {visible.map((row, k) => (
              <div key={row} id={`row-${row}`} role="row" class="row" aria-rowindex={first + k + 2} aria-selected={row === chosen}
                style={grid} onClick={() => (state.selected.value = row)}>
                {names.map((name) => <Cell key={name} name={name} row={row} />)}
              </div>
            ))}
          </div>
        </div>
        {!rows.length && <p class="empty">No row passes the filters.</p>}
      </div>
      <p class="total">{count(rows.length)} of {count(state.codes.value.length)} rows</p>
    </section>
  )
}

function keys(event) {
  const page = Math.max(1, Math.floor(event.currentTarget.clientHeight / HEIGHT) - 2)
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }
  if (!(event.key in steps) || event.target !== event.currentTarget) return
  move(steps[event.key])
  event.preventDefault()
  event.stopPropagation()
}

function Head({ name, k }) {
  const { name: now, down } = state.sorting.value
  const sorted = name === now
  const numeric = name === 'row' || state.columnOf(name)?.kind === 'number'
  return (
    <div role="columnheader" aria-colindex={k + 1} class={numeric ? 'number' : ''}
      aria-sort={sorted ? (down ? 'descending' : 'ascending') : 'none'}>
      {name === 'row'
        ? <button type="button" onClick={() => (state.sorting.value = { name: null, down: false })}>row</button>
        : (
          <button type="button" onClick={() => sortBy(name)}>
            {name}<i aria-hidden="true">{sorted ? (down ? '▼' : '▲') : ''}</i>
          </button>
        )}
    </div>
  )
}

function Cell({ name, row }) {
  if (name === 'row') return <div role="gridcell" class="number quiet">{row}</div>
  const column = state.columnOf(name)
  const value = valueOf(column, row)
  if (name === 'mark') return <div role="gridcell">{value && `${SIGNS[value]} ${value}`}</div>
  if (name === 'verdict') return <div role="gridcell"><Badge verdict={value} /></div>
  if (column.kind === 'number') return <div role="gridcell" class="number">{number(value)}</div>
  return <div role="gridcell" title={value ?? ''}>{value ?? ''}</div>
}
