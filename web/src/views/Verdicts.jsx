// How often each verdict was given; a click filters by it.
import { count, percent } from '../format.js'
import { toggleVerdict } from '../actions.js'
import * as state from '../state.js'
import { VERDICTS } from '../verdicts.js'
import { Badge } from './parts.jsx'

export function Verdicts() {
  const { all, now } = state.counts.value
  const most = Math.max(1, ...all)
  const total = state.codes.value.length || 1
  const right = state.data.right ?? {}
  return (
    <section class="card verdicts" aria-label="Verdicts">
      <header><h2>Verdicts</h2></header>
      <ul>
        {VERDICTS.map((name, code) => (all[code] > 0 || name !== 'unusable') && (
          <li key={name}>
            <button type="button" aria-pressed={state.wanted.value.has(name)} disabled={!all[code]}
              title={state.data.advice?.[name]} onClick={() => toggleVerdict(name)}>
              <Badge verdict={name} />
              <span class="many">
                {now[code] === all[code] ? count(all[code]) : `${count(now[code])} of ${count(all[code])}`}
              </span>
              <span class="share">{percent(all[code] / total)}</span>
              <span class={`bar ${name}`} aria-hidden="true">
                <i style={{ width: `${(100 * all[code]) / most}%` }} />
                <b style={{ width: `${(100 * now[code]) / most}%` }} />
              </span>
              {name in right && <span class="right" title="Of the ordinary inputs of the Judge with this verdict">ordinary ones: {percent(right[name])} right</span>}
            </button>
          </li>
        ))}
      </ul>
    </section>
  )
}
