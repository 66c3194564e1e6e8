// sound: a file or the microphone as samples of 16 bits, one channel, at the rate of the recogniser

const SILENCE = 35, MARGIN = 0.02;
// a page from a file may load a worklet from nowhere but a data: address
const LISTENER = "data:text/javascript," + encodeURIComponent(`
registerProcessor("listener", class extends AudioWorkletProcessor {
  process([[samples]]) { if (samples) this.port.postMessage(samples.slice()); return true; }
});`);

const clamp = (value) => Math.max(-32768, Math.min(32767, value));
const toIntegers = (samples) => Int16Array.from(samples, (value) => clamp(Math.round(32768 * value)));

async function readSound(file, rate) {
  // a context of that rate resamples what it decodes
  const sound = await new OfflineAudioContext(1, 1, rate).decodeAudioData(await file.arrayBuffer());
  const channels = Array.from({ length: sound.numberOfChannels }, (_, i) => sound.getChannelData(i));
  return channels[0].map((_, i) => channels.reduce((sum, channel) => sum + channel[i], 0) / channels.length);
}

// the sound without the silence before and after the word: what is 35 dB below the loudest 10 ms
function trimSilence(samples, rate) {
  const frame = Math.max(1, Math.floor(rate / 100)), powers = [];
  for (let start = 0; start + frame <= samples.length; start += frame)
    powers.push(samples.subarray(start, start + frame).reduce((sum, value) => sum + value * value, 0));
  const least = powers.reduce((most, power) => Math.max(most, power), 0) * 10 ** (-SILENCE / 10);
  const loud = powers.flatMap((power, i) => (power >= least ? [i * frame] : []));
  if (!loud.length) return samples;
  const margin = Math.round(MARGIN * rate);
  return samples.subarray(Math.max(0, loud[0] - margin), loud[loud.length - 1] + frame + margin);
}

// returns a function that stops listening
async function listen(rate, onSamples) {
  if (!navigator.mediaDevices) throw new Error("browsers lend it only to pages from https or from a file");
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  const context = new AudioContext({ sampleRate: rate });
  const stop = () => { microphone.getTracks().forEach((track) => track.stop()); context.close(); };
  try {
    const source = context.createMediaStreamSource(microphone);
    await context.audioWorklet.addModule(LISTENER);
    const listener = new AudioWorkletNode(context, "listener");
    listener.port.onmessage = ({ data }) => onSamples(data);
    // it writes nothing to its output; only nodes that lead to the loudspeaker run
    source.connect(listener).connect(context.destination);
  } catch (error) {
    stop();
    throw error;
  }
  return stop;
}
