/* Browsers start no worker from a page that was opened from disk. There the search runs in a hidden frame instead,
   so that it works in a folder without a server. (The theme would fetch a script for this from the network.) */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise((done, failed) => {
        const script = inside.document.createElement("script")
        script.src = new URL(url, document.baseURI).href
        script.onload = done
        script.onerror = failed
        inside.document.body.append(script)
      })
    }

    postMessage(data) {
      const inside = this.frame.contentWindow
      this.ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
