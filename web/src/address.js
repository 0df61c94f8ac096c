// The address keeps the view: #x=trust&y=p_outlier&v=outlier,tampered&row=3
import { batch, effect } from '@preact/signals'
import {
  axes, brush, logs, need, only, query, refusing, score, selected, settle, side, sorting, theme, threshold, wanted,
} from './state.js'
import { VERDICTS } from './verdicts.js'

const AXES = ['trust', 'p_outlier']

export function toAddress() {
  const found = new URLSearchParams()
  const put = (name, value) => value !== null && value !== '' && found.set(name, value)
  put('v', [...wanted.value].join(','))
  ;['x', 'y'].forEach((way, k) => put(way, axes.value[k] === AXES[k] ? '' : axes.value[k]))
  for (const [name, log] of logs.value) found.append(log ? 'log' : 'linear', name)
  put('brush', brush.value ? [...brush.value.x, ...brush.value.y].join(',') : '')
  put('q', query.value)
  put('side', side.value === 'all' ? '' : side.value)
  put('only', only.value === 'all' ? '' : only.value)
  put('sort', sorting.value.name ? `${sorting.value.down ? '-' : ''}${sorting.value.name}` : '')
  put('score', score.value === 'trust' ? '' : score.value)
  put('alarms', refusing.value ? '' : 'answered')
  put('t', threshold.value)
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
  const chosen = (name, log) => found.getAll(name).map((axis) => [axis, log])
  batch(() => {
    wanted.value = new Set(get('v').split(',').filter((name) => VERDICTS.includes(name)))
    axes.value = ['x', 'y'].map((way, k) => get(way) || AXES[k])
    logs.value = new Map([...chosen('log', true), ...chosen('linear', false)])
    brush.value = box.length === 4 && box.every(Number.isFinite) ? { x: box.slice(0, 2), y: box.slice(2) } : null
    query.value = get('q')
    side.value = choice('side', ['all', 'answered', 'refused'])
    only.value = choice('only', ['all', 'marked', 'unmarked'])
    sorting.value = { name: get('sort').replace(/^-/u, '') || null, down: get('sort').startsWith('-') }
    score.value = get('score') || 'trust'
    refusing.value = get('alarms') !== 'answered'
    threshold.value = get('t') && !Number.isNaN(Number(get('t'))) ? Number(get('t')) : null
    selected.value = whole
    theme.value = choice('theme', ['system', 'light', 'dark'])
    settle()
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
