// The default text of `millrace calibrate`: prose, dialogue, code, numbers and several languages, so that heads see
// typical kinds of input.
#pragma once

#include <string_view>

namespace millrace {

inline constexpr std::string_view kCalibrationText =
    R"(The mill stood where the river leaves the hills. In spring the water came down brown and fast, and the miller opened
the gate of the race only by the width of a hand; in August he opened it all the way and still the wheel turned slowly. His
grandfather had cut the channel three feet deeper than anyone thought necessary. "You build for the dry year," he used to
say, "and in the wet one you have a gate."

Question: A train leaves at 14:35 and arrives at 17:10 after 186.4 km. What was its average speed?
Answer: It travelled for 2 hours and 35 minutes, which is 155 minutes or about 2.583 hours. 186.4 / 2.583 = 72.2 km/h.

def merge(left, right):
    """Merges two sorted lists into one."""
    out, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            out.append(left[i]); i += 1
        else:
            out.append(right[j]); j += 1
    return out + left[i:] + right[j:]

{"id": 4711, "name": "Ada", "tags": ["math", "engine"], "balance": -12.75, "active": true, "parent": null}

| city | people | founded |
|---|---|---|
| Lisbon | 545,796 | c. 1200 BC |
| Quito | 1,978,376 | 1534 |

User: I spilled coffee on my keyboard. Can I save it?
Assistant: Probably, if you act quickly. 1. Unplug it. 2. Turn it upside down and let it drain. 3. Wipe it with a cloth that
is damp, not wet. 4. Leave it to dry for two days. Do not use a hair dryer: heat bends the keycaps.

Photosynthesis turns light into chemical energy. In the light reactions, pigments in the thylakoid membranes absorb photons
and split water; the electrons pass along a chain of carriers, and the proton gradient that builds up drives the synthesis of
ATP. The Calvin cycle then fixes carbon dioxide into sugars with the help of the enzyme RuBisCO, the most abundant protein
on Earth and, as enzymes go, one of the slowest.

Der Fluss trat im Frühjahr über die Ufer, und wer konnte, trug seine Säcke auf den Dachboden. La maison était vide depuis
longtemps, mais le jardin continuait de fleurir. Ayer compré tres kilos de naranjas por 4,50 €. Дождь шёл всю ночь.
山の上の湖は冬になると凍る。 今天下午三点开会,请准时参加。

It was, all in all, the best of reasons and the worst of excuses; nobody in the room believed it, and nobody said so. She
closed the file, thanked them, and went out into the rain without her coat, her hat, her umbrella, or any regret at all.)";

}  // namespace millrace
