// The whole page: what it is about, the filter, the views, and the keys.
import { useEffect, useRef } from 'preact/hooks'
import { valueOf } from '../data/columns.js'
import { csvParts } from '../data/csv.js'
import * as actions from '../actions.js'
import { count } from '../format.js'
import * as state from '../state.js'
import { Curve } from './Curve.jsx'
import { Detail } from './Detail.jsx'
import { Scatter } from './Scatter.jsx'
import { columnsOf, Table } from './Table.jsx'
import { Verdicts } from './Verdicts.jsx'

const KEYS = [
  ['↑ ↓', 'row before, row after'], ['Enter', 'go to the detail'], ['Esc', 'back, or clear the filters'], ['/', 'filter'],
  ['u', 'a row by chance, without a mark'],
  ['t', 'dark, light, as the system'], ['?', 'this help'],
]

const MARKING = [['1 2 3', 'mark the row: right, wrong, does not belong']]

export function App() {
  const field = useRef(null)
  useEffect(() => {
    const press = (event) => keys(event, field.current)
    addEventListener('keydown', press)
    return () => removeEventListener('keydown', press)
  }, [])
  if (state.failure.value && !state.store.value)
    return <main class="stop"><h1>The verdicts cannot be shown</h1><p role="alert">{state.failure.value}</p></main>
  const ready = Boolean(state.store.value)
  return (
    <div class={`app ${state.selected.value === null ? '' : 'with-detail'}`} aria-busy={!ready}>
      <header class="top">
        <h1><span class="name">credibly</span> <span class="file">{state.data.title}</span></h1>
        <label class="search">
          <span class="away">Filter</span>
          <input ref={field} type="search" placeholder="Filter:  bag   trust<0.5   predicted=Coat" spellcheck={false}
            value={state.query.value} onInput={(event) => (state.query.value = event.currentTarget.value)}
            aria-invalid={Boolean(state.queryError.value)} aria-describedby="wrong" />
          <kbd>/</kbd>
        </label>
        {(state.data.marking || state.marks.value.size > 0) && (
          <span class="choice">
            <select aria-label="Marks" value={state.only.value} onChange={(event) => (state.only.value = event.currentTarget.value)}>
              <option value="all">all rows</option><option value="marked">marked</option><option value="unmarked">not marked</option>
            </select>
          </span>
        )}
        {state.filtered.value && <button type="button" class="plain" onClick={actions.clearFilters}>Clear filters</button>}
        <span class="space" />
        <button type="button" disabled={!ready || !state.shown.value.count} onClick={save}>Export {ready ? count(state.shown.value.count) : ''} rows</button>
        <button type="button" class="icon" aria-label={`Colours: ${state.theme.value}`} title="Dark, light, as the system (t)" onClick={nextTheme}>
          {{ system: '◐', light: '☀', dark: '☾' }[state.theme.value]}
        </button>
        <button type="button" class="icon" aria-label="Keys" title="Keys (?)" onClick={() => (state.helping.value = true)}>?</button>
        <p id="wrong" class="wrong" role="status">{state.queryError.value}</p>
        {state.unsaved.value && <p class="wrong" role="alert">{state.unsaved.value} <button type="button" class="plain" onClick={() => (state.unsaved.value = '')}>Close</button></p>}
      </header>
      {ready ? (
        <main>
          <Verdicts /><Scatter /><Curve /><Table /><Detail />
        </main>
      ) : <p class="waiting" role="status">reading {state.data.title} …</p>}
      <p class="away" role="status" aria-live="polite">{state.said.value}</p>
      {state.helping.value && <Help />}
    </div>
  )
}

function keys(event, field) {
  if (event.ctrlKey || event.metaKey || event.altKey) return
  const typing = /^(INPUT|SELECT|TEXTAREA)$/u.test(event.target.tagName) && event.target.type !== 'checkbox'
  if (event.key === 'Escape') {
    if (state.helping.value) state.helping.value = false
    else if (typing) event.target.blur()
    else if (state.selected.value !== null) state.selected.value = null
    else actions.clearFilters()
    event.preventDefault() // a field of a search would lose its text
    return
  }
  const scrolling = event.key.startsWith('Arrow') && event.target.closest('.detail .scroll')
  if (typing || scrolling || state.helping.value) return
  const row = state.selected.value
  const marking = state.data.marking && row !== null
  const doing = {
    ArrowDown: () => actions.move(1),
    ArrowUp: () => actions.move(-1),
    '/': () => field.select() ?? field.focus(),
    '?': () => (state.helping.value = true),
    t: nextTheme,
    u: actions.moveByChance,
    ...(marking && { 1: () => actions.mark(row, 'right'), 2: () => actions.mark(row, 'wrong'), 3: () => actions.mark(row, 'foreign') }),
  }
  if (event.key === 'Enter' && row !== null && !/^(BUTTON|A)$/u.test(event.target.tagName)) doing.Enter = () => document.querySelector('.detail .scroll')?.focus()
  if (!doing[event.key]) return
  doing[event.key]()
  event.preventDefault()
}

function nextTheme() {
  const names = ['system', 'light', 'dark']
  state.theme.value = names[(names.indexOf(state.theme.value) + 1) % 3]
}

function save() {
  const names = columnsOf()
  const read = (name, row) => (name === 'row' ? row : valueOf(state.columnOf(name), row))
  const blob = new Blob(csvParts(names, state.table.value, read), { type: 'text/csv' })
  const link = document.createElement('a')
  link.href = URL.createObjectURL(blob)
  link.download = `${state.data.title.replace(/\.parquet$/u, '')}-selection.csv`
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
}

function Help() {
  const close = useRef(null)
  useEffect(() => {
    const before = document.activeElement
    close.current.focus()
    return () => before?.focus?.()
  }, [])
  const off = () => (state.helping.value = false)
  return (
    <div class="veil" onClick={(event) => event.target === event.currentTarget && off()}>
      <div class="help" role="dialog" aria-modal="true" aria-label="Keys">
        <h2>Keys</h2>
        <dl>{[...KEYS, ...(state.data.marking ? MARKING : [])].map(([key, words]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{words}</dd></div>)}</dl>
        <h2>Filters</h2>
        <p>Words are looked for in all columns of words; a whole number is a row or an id. Columns are compared: <code>trust&lt;0.5</code>, <code>row&gt;=100</code>, <code>predicted="Ankle boot"</code>, <code>label!=Bag</code>, {state.data.marking && <><code>mark=wrong</code>, </>}<code>"size in cm"&gt;40</code>. <code>label=""</code> finds rows without a label. Every part must hold. Drag in the scatter to select a part of it.</p>
        <p class="hint">credibly {state.data.version}. This page loads nothing from elsewhere; the address keeps what you see.</p>
        <button type="button" ref={close} onClick={off} onKeyDown={(event) => event.key === 'Tab' && event.preventDefault()}>Close</button>
      </div>
    </div>
  )
}
