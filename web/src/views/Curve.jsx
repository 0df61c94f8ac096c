// Accuracy and what is caught against the share that is answered, with a threshold to drag.
import { batch } from '@preact/signals'
import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import { answerFirst } from '../actions.js'
import { interval, measure, points, stepped, tally } from '../data/curves.js'
import { wayOf } from '../data/direction.js'
import { count, number, percent } from '../format.js'
import * as state from '../state.js'
import { Choice, color, useScheme, useSize } from './parts.jsx'

const LINES = [
  { name: 'accuracy', label: 'accuracy', color: 'after', dash: [] },
  { name: 'errors', label: 'errors caught', color: 'before', dash: [8, 4] },
  { name: 'foreign', label: '“does not belong” caught', color: 'third', dash: [10, 3, 2, 3] },
  { name: 'alarms', label: 'alarms caught', color: 'outlier', dash: [2, 3] },
]

export function Curve() {
  const [place, size] = useSize()
  const plot = useRef(null)
  const handle = useRef(null)
  const [, setDrawn] = useState('')
  const scheme = useScheme()
  const curve = state.curve.value
  const theme = state.theme.value
  const lines = LINES.filter(({ name }) => {
    if (!curve) return false
    const { known, wrong, foreign, alarms } = curve.totals
    if (name === 'alarms' && state.refusing.value) return false // all of them are refused
    return { accuracy: known, errors: wrong, foreign, alarms }[name] > 0
  })
  const key = lines.map(({ name }) => name).join()

  useEffect(() => {
    if (!size.width || !curve) return undefined
    const drawn = ({ bbox: { left, top, width, height } }) => setDrawn([left, top, width, height].join())
    plot.current = new uPlot({ ...options(size, lines), hooks: { draw: [drawn] } }, dataOf(curve, lines), place.current)
    place.current.querySelector('.u-wrap').append(handle.current)
    return () => {
      place.current?.append(handle.current)
      plot.current.destroy()
      plot.current = null
    }
  }, [size.width, size.height, key, scheme, theme, Boolean(curve)])
  useEffect(() => {
    if (plot.current && curve) plot.current.setData(dataOf(curve, lines))
  }, [curve])

  const answered = state.answered.value
  const now = curve ? measure(curve, answered) : null
  const counts = curve ? tally(curve, answered) : null
  const before = useRef(null)
  const goTo = (places) => curve?.scored && answerFirst(Math.min(curve.scored, Math.max(0, Math.round(places))))
  const drag = (event) => {
    if (event.buttons !== 1 || !plot.current) return
    const box = plot.current.over.getBoundingClientRect()
    goTo(((event.clientX - box.left) / box.width) * curve.total)
  }
  const press = (event) => {
    const step = Math.max(1, Math.round((curve?.total ?? 0) / 100))
    const steps = { ArrowLeft: -step, ArrowDown: -step, ArrowRight: step, ArrowUp: step, PageDown: -10 * step, PageUp: 10 * step }
    if (event.key === 'Home') goTo(0)
    else if (event.key === 'End') goTo(curve.scored)
    else if (event.key in steps) goTo(stepped(curve, answered, steps[event.key]))
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const limit = state.limit.value ?? NaN
  const rule = `${state.score.value} ${wayOf(state.score.value) > 0 ? '≥' : '≤'} ${number(limit)}`
  return (
    <section class="card curve" aria-label="What a threshold does">
      <header>
        <h2>Threshold</h2>
        <Choice label="on" value={state.score.value} options={state.limits.value}
          onChange={(name) => {
            state.threshold.value = null
            state.score.value = name
          }} />
        {state.alarmed.value && (
          <label class="tick" title="Outliers and rows that were tampered with are not answered, whatever their score">
            <input type="checkbox" checked={state.refusing.value}
              onChange={(event) => batch(() => {
                state.threshold.value = null
                state.refusing.value = event.currentTarget.checked
              })} />
            refuse alarms
          </label>
        )}
        <div class="sides" role="group" aria-label="Rows of the threshold that are shown">
          {['all', 'answered', 'refused'].map((name) => (
            <button type="button" key={name} aria-pressed={state.side.value === name}
              onClick={() => (state.side.value = name)}>{name}</button>
          ))}
        </div>
      </header>
      <div class="plot" ref={place} onPointerDown={(event) => {
        if (event.target.closest('.u-over, .handle')) {
          event.currentTarget.setPointerCapture(event.pointerId)
          before.current = state.threshold.value
          drag(event)
        }
      }} onPointerMove={drag} onPointerCancel={() => (state.threshold.value = before.current) /* a finger scrolls the page */}>
        <div class="handle" ref={handle} role="slider" tabIndex={0} aria-label="Threshold, as the share that is answered"
          aria-valuemin={0} aria-valuemax={100} aria-valuenow={now ? Math.round(100 * (now.coverage || 0)) : 0}
          aria-valuetext={now ? `${percent(now.coverage)} answered at ${rule}` : ''}
          style={handlePlace(plot.current, now)} onKeyDown={press}><i /></div>
      </div>
      <p class="reading-of" aria-live="polite">
        {now && curve.scored > 0 && (
          <>
            <b>{rule}</b>{' '}
            answers {count(answered)} of {count(curve.total)} rows ({percent(now.coverage)})
            <span class="values">
              {lines.map(({ name, label, color: ink, dash }) => (
                <span key={name}>
                  <svg width="22" height="8" aria-hidden="true">
                    <line x1="0" x2="22" y1="4" y2="4" stroke={`var(--${ink})`} stroke-width="2.5" stroke-dasharray={dash.join(' ')} />
                  </svg>
                  {label} <b>{percent(now[name])}</b> <Counts name={name} counts={counts[name]} />
                </span>
              ))}
            </span>
          </>
        )}
        {curve && !curve.totals.known && <Unknown />}
        {state.notes.value.map((note) => <span key={note} class="hint note">{note}</span>)}
      </p>
    </section>
  )
}

function Counts({ name, counts: [some, all] }) {
  if (name !== 'accuracy') return <span>({count(some)} of {count(all)})</span>
  if (!all) return <span>(none labelled)</span>
  const [low, high] = interval(some, all)
  return <span>({count(some)} of {count(all)} labelled, 95 % interval {(100 * low).toFixed(1)} to {percent(high)})</span>
}

function Unknown() {
  if (state.anyKnown.value) return <span class="hint">None of the rows shown has a label or a mark.</span>
  if (state.labels.value.all) return null // a note says why they do not count
  return (
    <span class="hint">
      No labels: judge with <code>--label NAME</code>, which carries a column or array of true classes along, or mark rows, to see how often the answers are right.
    </span>
  )
}

function dataOf(curve, lines) {
  const counts = points(curve)
  const found = counts.map((places) => measure(curve, places))
  const x = found.map(({ coverage }) => 100 * coverage)
  return [x, ...lines.map(({ name }) => found.map((one) => (Number.isNaN(one[name]) ? null : 100 * one[name])))]
}

function options({ width, height }, lines) {
  const axis = {
    stroke: color('quiet'), font: '12px system-ui, sans-serif', labelFont: '12px system-ui, sans-serif',
    grid: { stroke: color('line'), width: 1 }, ticks: { show: false }, labelSize: 18, labelGap: 0,
  }
  return {
    width, height,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { show: false }, x: false, y: false },
    scales: { x: { time: false, range: [0, 100] }, y: { range: (_, low, high) => spanOf(low, high) } },
    axes: [
      { ...axis, size: 24, gap: 3, label: 'answered (%)' },
      { ...axis, size: 48, values: (_, values) => values.map((value) => `${value} %`) },
    ],
    series: [{}, ...lines.map(({ color: ink, dash }) => ({
      stroke: color(ink), width: 2, dash, points: { show: false }, spanGaps: true,
    }))],
  }
}

function spanOf(low, high) {
  if (low === null) return [0, 100]
  const bottom = low > 60 ? Math.floor(low / 5) * 5 : 0
  return [Math.min(bottom, 95), Math.max(100, high)]
}

function handlePlace(plot, now) {
  if (!plot || !now) return { display: 'none' }
  const { left, top, width, height } = plot.bbox
  const ratio = devicePixelRatio
  return { left: `${(left + (now.coverage || 0) * width) / ratio}px`, top: `${top / ratio}px`, height: `${height / ratio}px` }
}
