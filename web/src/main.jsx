import { render } from 'preact'
import { keepAddress } from './address.js'
import { open } from './state.js'
import { App } from './views/App.jsx'

const place = document.getElementById('app')
place.textContent = ''
keepAddress()
render(<App />, place)
open()
