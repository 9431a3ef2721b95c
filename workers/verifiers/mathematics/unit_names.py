"""The list of units: their names and symbols, and things that are counted. A table; `units` has the rules.

Names are compared in lower case, symbols of one or two letters as written.
"""

from __future__ import annotations

# The name that stands for all, then its others; `+` adds the plural. Products are written out: mph is mi/h.
_MEASURED = """
m meter+ metre+ | cm+ centimeter+ centimetre+ | mm millimeter+ millimetre+ | dm decimeter+ decimetre+
km+ kilometer+ kilometre+ | nm nanometer+ nanometre+ | μm micrometer+ micron+ | in inch inches | ft foot feet
yd+ yard+ | mi mile+ | ly lightyear+ | pc parsec+ | AU au | Å angstrom+ | acre+ | ha hectare+ | L l liter+ litre+
mL ml milliliter+ millilitre+ | gal gallon+ | qt quart+ | pt pint+ | cup+ | tbsp tablespoon+ | tsp teaspoon+
g gm+ gram+ gramme+ | kg+ kilo+ kilogram+ | mg milligram+ | lb+ pound+ £ | oz ounce+ | ton+ tonne+ | s sec+ second+
ms millisecond+ | min+ minute+ | h hr+ hour+ | day+ | week+ wk+ | month+ | yr+ year+ | decade+ | century centuries | am
pm | deg degree+ ° | °C celsius | °F fahrenheit
 rad+ radian+ | K kelvin+ | N newton+ | J joule+ | kJ kilojoule+ | eV | keV | MeV | GeV | erg+
cal calorie+ | kcal kilocalorie+ | W watt+ | kW kilowatt+ | MW megawatt+ | kWh | V volt+ | A amp+ ampere+ | C coulomb+
F farad+ | T tesla+ | Ω ohm+ | H henry henries | Hz hertz | kHz kilohertz | MHz megahertz | GHz gigahertz | Pa pascal+
kPa kilopascal+ | MPa megapascal+ | atm atmosphere+ | bar+ | mol+ mole+ | dB decibel+ | bit+ | byte+ | KB kB kilobyte+
MB megabyte+ | GB gigabyte+ | $ dollar+ usd USD buck+ | cent+ ¢ penny pennies | € euro+ EUR eur | ¥ yen yuan RMB rmb
₹ rupee+ | peso+ | shilling+ | nickel+ | dime+ | quarter+
"""
# Things that a question counts: any of them, because the question says which.
_COUNTED = """
unit+ way+ time+ thing+ item+ object+ person+ people man men woman women boy+ girl+ child children kid+ adult+ student+
teacher+ friend+ member+ player+ team+ game+ match matches worker+ employee+ customer+ passenger+ guest+ voter+ vote+
apple+ orange+ banana+ lemon+ cherry cherries grape+ fruit+ pear+ peach peaches tomato tomatoes potato potatoes carrot+
egg+ cookie+ cake+ pie+ pizza+ slice+ sandwich sandwiches candy candies cupcake+ muffin+ donut+ chocolate+ bottle+ can+
glass glasses jar+ bag+ box boxes basket+ bucket+ crate+ package+ pack+ carton+ piece+ ball+ marble+ coin+ card+ die
dice block+ brick+ tile+ bead+ button+ stamp+ sticker+ toy+ doll+ book+ page+ chapter+ word+ letter+ digit+ number+
integer+ solution+ root+ value+ factor+ divisor+ term+ element+ subset+ set+ pair+ triple+ tuple+ triangle+ square+
rectangle+ circle+ cube+ polygon+ side+ edge+ vertex vertices face+ diagonal+ angle+ point+ line+ segment+ region+ path+
step+ turn+ move+ row+ column+ arrangement+ permutation+ combination+ outcome+ possibility possibilities sequence+
function+ car+ truck+ bus buses train+ bike+ bicycle+ boat+ plane+ wheel+ ticket+ seat+ room+ house+ floor+ door+
window+ school+ class classes lesson+ test+ question+ problem+ pencil+ pen+ crayon+ notebook+ paper+ sheet+ folder+
flower+ rose+ tree+ plant+ seed+ leaf leaves dog+ cat+ bird+ fish cow+ horse+ pig+ sheep goat+ chicken+ duck+ rabbit+
animal+ leg+ shirt+ shoe+ sock+ hat+ dress dresses jacket+ photo+ picture+ song+ movie+ video+ show+ trip+ lap+ mile
round+ goal+ message+ call+ email+ meal+ serving+ bite+ gift+ present+ bracelet+ necklace+ rope+ string+ stone+ rock+
chair+ table+ bed+ lamp+ light+ phone+ computer+ robot+ post+ fence pound-weight neighbor+ visitor+
patient+ doctor+ soldier+ sailor+ farmer+
"""


def _names(text: str) -> list[str]:
    return [name for word in text.split() for name in ([word[:-1], f"{word[:-1]}s"] if word[-1] == "+" else [word])]


_UNITS = [_names(line) for line in _MEASURED.replace("\n", "|").strip("|").split("|")]
UNIT_NAMES = {name: names[0] for names in _UNITS for name in names}
GENERIC = frozenset(_names(_COUNTED)) - set(UNIT_NAMES)
# Written out, because they are several units.
COMPOUND = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h", "kmph": "km/h", "mps": "m/s", "fps": "ft/s", "psi": "lb/in^2"}
COMPOUND |= {"rpm": "turns/min", "cc": "cm^3", "sqft": "ft^2", "sqm": "m^2", "gpm": "gal/min", "mpg": "mi/gal"}
MULTIPLIERS = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
MULTIPLIERS |= {"millions": 10**6, "billions": 10**9, "thousands": 10**3, "dozen": 12, "dozens": 12}
# Symbols of two letters that are read as a unit without a text font; others may be a product of two letters.
PLAIN_SYMBOLS = frozenset(["cm", "mm", "km", "kg", "ft", "in", "yd", "oz", "lb", "hr", "hrs", "am", "pm", "mi", "Hz"])
# They say how something lies or which part of it is meant, and leave its size as it is.
DESCRIPTIONS = frozenset(
    ["old", "tall", "long", "wide", "high", "deep", "thick", "away", "apart", "each", "total", "altogether"]
)
