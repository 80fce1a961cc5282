// The search of pages that are opened from a disk, where a browser starts no worker: a hidden frame runs its script.
"use strict";

class FrameWorker extends EventTarget {
  constructor(address) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    inside.postMessage = (data) => this.answered(data);
    inside.importScripts = (...more) => more.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve());
    this.ready = this.load(address);
  }

  // Runs a script in the frame, whose global names are its own.
  load(address) {
    const script = this.frame.contentDocument.createElement("script");
    script.src = new URL(address, location.href);
    return new Promise((done) => {
      script.onload = done;
      this.frame.contentDocument.body.append(script);
    });
  }

  postMessage(data) {
    const message = { data: structuredClone(data) };
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", message)));
  }

  answered(data) {
    const event = new MessageEvent("message", { data });
    this.dispatchEvent(event);
    this.onmessage?.(event);
  }

  terminate() {
    this.frame.remove();
  }
}

// The theme's script looks for this name, and then waits for what it imports.
window.IFrameWorker = FrameWorker;
if (location.protocol === "file:") window.Worker = FrameWorker;
