// One input: what was said of it, how it looks, what would change the model's mind.
import { useEffect, useState } from 'preact/hooks'
import { valueOf } from '../data/columns.js'
import { number } from '../format.js'
import { mark } from '../actions.js'
import * as state from '../state.js'
import { Badge } from './parts.jsx'

const MARKS = [['right', '1', 'right'], ['wrong', '2', 'wrong'], ['foreign', '3', 'does not belong']]

export function Detail() {
  const row = state.selected.value
  const { found, error, waiting } = useDetail(row)
  const columns = state.loaded.value
  if (row === null || !columns.verdict)
    return (
      <section class="card detail" aria-label="Detail">
        <div class="nothing">
          <p>Choose a row to see its input, and why it got its verdict.</p>
          <p><kbd>↓</kbd> first row <kbd>/</kbd> filter <kbd>?</kbd> all keys</p>
        </div>
      </section>
    )
  const read = (name) => (state.columnOf(name) ? valueOf(columns[name], row) : null)
  const [verdict, predicted, label, id] = ['verdict', 'predicted', 'label', 'id'].map(read)
  const reason = found?.reason ?? read('reason')
  return (
    <section class="card detail" aria-label={`Row ${row}`}>
      <header>
        <h2><Badge verdict={verdict} /></h2>
        <span class="which">row {row}{id !== null && id !== row && <> · <span class="id">{id}</span></>}</span>
        <button type="button" class="plain close" aria-label="Close the detail" onClick={() => (state.selected.value = null)}>✕</button>
      </header>
      <div class="scroll" tabIndex={0}>
        <p class="said">
          {predicted === null ? 'No class' : <>Class <b>{predicted}</b></>}
          {label !== null && <Truth label={label} predicted={predicted} />}
        </p>
        {reason && <p class="why">{capital(reason)}</p>}
        {found?.differs && <p class="why bad">{found.differs}</p>}
        {state.data.marking && <Marks row={row} />}
        {waiting && <p class="waiting">solving its counterfactual …</p>}
        {error && <p class="why bad" role="alert">{error}</p>}
        {found?.beside && <figure class="pictures"><Picture src={found.beside} alt="The input" /></figure>}
        {found?.input && <Input input={found.input} />}
        {found?.title && <p class="hint">{found.title}</p>}
        {found?.classes && <Classes classes={found.classes} total={found.class_count} />}
        {found?.neighbours?.length > 0 && <Neighbours {...found} />}
        {!found && !waiting && !error && !state.store.value.known(row) && (
          <p class="hint">{state.data.advice_detail ?? 'The input of this row is not part of the page.'}</p>
        )}
        <Numbers row={row} />
      </div>
    </section>
  )
}

/** What is known of a row; asked for when it is chosen, and no longer when another one is. */
function useDetail(row) {
  const [answer, setAnswer] = useState({ row: null })
  const store = state.store.value
  useEffect(() => {
    if (row === null || !store) return undefined
    const control = new AbortController()
    const started = performance.now()
    const finish = (result) => {
      if (control.signal.aborted) return
      setAnswer({ row, ...result })
      requestAnimationFrame(() => performance.measure('detail', { start: started, end: performance.now() }))
    }
    const timer = setTimeout(() => store.known(row) && setAnswer((old) => (old.row === row ? old : { row, waiting: true })), 120)
    const ask = async () => {
      const found = await store.detail(row, control.signal)
      if (found || !store.cells || !('reason' in store.kinds) || state.loaded.peek().reason) return found
      return store.cells(row, ['reason'])
    }
    ask().then((found) => finish({ found }), (error) => finish({ error: error.message })).finally(() => clearTimeout(timer))
    return () => {
      clearTimeout(timer)
      control.abort()
    }
  }, [row, store])
  return answer.row === row ? answer : {}
}

function Truth({ label, predicted }) {
  if (!state.labels.value.good) return <span class="quiet"> · label {label}</span>
  if (label === predicted) return <span class="good"> ✓ right</span>
  return <span class="bad"> ✗ it is {label}</span>
}

function Marks({ row }) {
  const now = state.marks.value.get(row)
  return (
    <div class="marks" role="group" aria-label="What you make of it">
      {MARKS.map(([name, key, words]) => (
        <button type="button" key={name} aria-pressed={now === name} title={`key ${key}`} onClick={() => mark(row, name)}>
          {words} <kbd>{key}</kbd>
        </button>
      ))}
    </div>
  )
}

function Picture({ src, alt, caption, width, height }) {
  const small = !width || width <= 128
  return (
    <div>
      <img src={src} alt={alt} class={small ? 'pixels' : ''} style={{ aspectRatio: width ? `${width} / ${height}` : 'auto' }} />
      {caption && <figcaption>{caption}</figcaption>}
    </div>
  )
}

function Input({ input }) {
  if (input.kind === 'image') {
    const size = { width: input.width, height: input.height }
    return (
      <figure class="pictures">
        <Picture src={input.before} alt="The input x0" caption="input x0" {...size} />
        {input.after && <Picture src={input.after} alt="Its counterfactual x+" caption="counterfactual x+" {...size} />}
        {input.difference && (
          <Picture src={input.difference} alt="The difference between the two" caption={<>difference<br /><small>blue −{number(input.limit, 2)} to red +{number(input.limit, 2)}</small></>} {...size} />
        )}
      </figure>
    )
  }
  if (input.kind === 'table') return <Columns input={input} />
  if (input.kind === 'signal') return <Signal input={input} />
  if (input.kind === 'words') return <Words input={input} />
  return <p class="hint">{input.sentence}</p>
}

function Columns({ input: { columns: given, total, scaled, least } }) {
  const columns = given.map((column) => ({ ...column, moved: Math.abs(column.moved) > least ? column.moved : 0 }))
  const most = Math.max(...columns.map(({ moved }) => Math.abs(moved)), least)
  const solved = columns[0]?.after !== null
  return (
    <div class="columns">
      <h3>{!solved ? 'Columns' : columns.some(({ moved }) => moved) ? 'Columns that moved most' : 'Columns; none had to move'}{columns.length < total && ` (${columns.length} of ${total})`}</h3>
      <table>
        <thead><tr><th scope="col">column</th><th scope="col">input x0</th>{solved && <><th scope="col">x+</th><th scope="col">moved{scaled && ', in its scale'}</th></>}</tr></thead>
        <tbody>
          {columns.map(({ name, before, after, moved }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{number(before, 4)}</td>
              {solved && (
                <>
                  <td>{number(after, 4)}</td>
                  <td class="moved">
                    <span class={`way ${moved < 0 ? 'less' : 'more'}`} aria-hidden="true"><i style={{ width: `${(50 * Math.abs(moved)) / most}%` }} /></span>
                    {moved > 0 ? '+' : ''}{number(moved, 2)}
                  </td>
                </>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function Signal({ input: { before, after, channel, channels } }) {
  const all = [...before, ...(after ?? [])]
  const [low, high] = [Math.min(...all), Math.max(...all)]
  const path = (values) => values.map((value, k) =>
    `${k ? 'L' : 'M'}${((400 * k) / (values.length - 1)).toFixed(1)} ${(5 + (110 * (high - value)) / (high - low || 1)).toFixed(1)}`).join('')
  return (
    <figure class="signal">
      <svg viewBox="0 0 400 120" preserveAspectRatio="none" role="img" aria-label="The signal before and after">
        <path class="before" d={path(before)} />
        {after && <path class="after" d={path(after)} />}
      </svg>
      <figcaption>
        <span class="key before">input x0</span>{after && <span class="key after">counterfactual x+</span>}
        {channels > 1 && ` channel ${channel} of ${channels}, which moved most;`} {number(low)} to {number(high)}
      </figcaption>
    </figure>
  )
}

function Words({ input: { words, least } }) {
  const most = Math.max(...words.map(({ moved }) => moved), least)
  const top = [...words].sort((a, b) => b.moved - a.moved).slice(0, 3).filter(({ moved }) => moved > least)
  return (
    <div class="words">
      <h3>{top.length ? 'Words that moved most' : 'Words'}</h3>
      <p>
        {words.map(({ text, moved }, k) => (
          <span key={k} title={`moved by ${number(moved)}`}>
            <span class="word" style={{ borderBottomWidth: `${Math.round((6 * moved) / most)}px`, fontWeight: moved > 0.5 * most ? 700 : 400 }}>{text}</span>{' '}
          </span>
        ))}
      </p>
      <p class="hint">
        {top.length ? `${top.map(({ text, moved }) => `${text} ${number(moved, 2)}`).join(', ')}. A thick line below a word: its embedding had to move far.` : 'No word had to move.'}
      </p>
    </div>
  )
}

function Classes({ classes, total }) {
  const low = Math.min(-1e-9, ...classes.flatMap(({ before, after }) => [before, after]))
  const bar = (value) => ({ width: `${(100 * value) / low}%` })
  return (
    <div class="classes">
      <h3>{total > classes.length ? `Credibility of ${classes.length} of ${total} classes, those ahead before or after` : 'Credibility of each class'} <span class="key before">before, c0</span> <span class="key after">after, c+</span></h3>
      <p class="hint">A short bar is a credible class: 0 is best.</p>
      <ul>
        {classes.map(({ name, before, after, predicted }) => (
          <li key={name}>
            <span class="name" title={name}>{predicted ? <b>{name}</b> : name}</span>
            <span class="bars" aria-hidden="true"><i class="before" style={bar(before)} /><i class="after" style={bar(after)} /></span>
            <span class="value">{number(before, 3)} → {number(after, 3)}</span>
          </li>
        ))}
      </ul>
    </div>
  )
}

function Neighbours({ neighbours, nearest_by: by }) {
  return (
    <div class="neighbours">
      <h3>Nearest ordinary inputs{by && <span class="hint">, by {by}</span>}</h3>
      <ol>
        {neighbours.map(({ picture, columns, name, distance }, k) => (
          <li key={k}>
            {picture && <img src={picture} alt={`Ordinary input ${k + 1}`} class="pixels" />}
            <span>{name && <b>{name}</b>} <span class="quiet">at {number(distance, 2)}</span></span>
            {columns && <span class="cells">{columns.map(({ name: column, value }) => <span key={column}>{column} {number(value, 3)}</span>)}</span>}
          </li>
        ))}
      </ol>
    </div>
  )
}

function Numbers({ row }) {
  const columns = state.loaded.value
  const names = Object.keys(columns).filter((name) => columns[name].kind === 'number' && !['id', 'label'].includes(name))
  return (
    <div class="numbers">
      <h3>Numbers</h3>
      <dl>
        {names.map((name) => (
          <div key={name}><dt title={name}>{name}</dt><dd>{number(columns[name].values[row], 4)}</dd></div>
        ))}
      </dl>
    </div>
  )
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1)
}
