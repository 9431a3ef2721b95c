"""The list of units: their names and symbols, and things that are counted. A table; `units` has the rules.

A name on the left stands for all on its line. Names are compared in lower case, symbols of one or two
letters as written.
"""

from __future__ import annotations

# Symbols, then words. Products are written out: mph is mi/h.
_MEASURED = {
    "m": "m meter meters metre metres",
    "cm": "cm cms centimeter centimeters centimetre centimetres",
    "mm": "mm millimeter millimeters millimetre millimetres",
    "dm": "dm decimeter decimeters decimetre decimetres",
    "km": "km kms kilometer kilometers kilometre kilometres",
    "nm": "nm nanometer nanometers nanometre nanometres",
    "μm": "μm micrometer micrometers micron microns",
    "in": "in inch inches",
    "ft": "ft foot feet",
    "yd": "yd yds yard yards",
    "mi": "mi mile miles",
    "ly": "ly lightyear lightyears",
    "pc": "pc parsec parsecs",
    "AU": "AU au",
    "Å": "Å Å angstrom angstroms",
    "acre": "acre acres",
    "ha": "ha hectare hectares",
    "L": "L l liter liters litre litres",
    "mL": "mL ml milliliter milliliters millilitre millilitres",
    "gal": "gal gallon gallons",
    "qt": "qt quart quarts",
    "pt": "pt pint pints",
    "cup": "cup cups",
    "tbsp": "tbsp tablespoon tablespoons",
    "tsp": "tsp teaspoon teaspoons",
    "g": "g gm gms gram grams gramme grammes",
    "kg": "kg kgs kilo kilos kilogram kilograms",
    "mg": "mg milligram milligrams",
    "lb": "lb lbs pound pounds £",  # pounds of mass or money
    "oz": "oz ounce ounces",
    "ton": "ton tons tonne tonnes",
    "s": "s sec secs second seconds",
    "ms": "ms millisecond milliseconds",
    "min": "min mins minute minutes",
    "h": "h hr hrs hour hours",
    "day": "day days",
    "week": "week weeks wk wks",
    "month": "month months",
    "yr": "yr yrs year years",
    "decade": "decade decades",
    "century": "century centuries",
    "am": "am",
    "pm": "pm",
    "deg": "deg degree degrees °",
    "rad": "rad rads radian radians",
    "K": "K kelvin kelvins",
    "N": "N newton newtons",
    "J": "J joule joules",
    "kJ": "kJ kilojoule kilojoules",
    "eV": "eV",
    "keV": "keV",
    "MeV": "MeV",
    "GeV": "GeV",
    "erg": "erg ergs",
    "cal": "cal calorie calories",
    "kcal": "kcal kilocalorie kilocalories",
    "W": "W watt watts",
    "kW": "kW kilowatt kilowatts",
    "MW": "MW megawatt megawatts",
    "kWh": "kWh",
    "V": "V volt volts",
    "A": "A amp amps ampere amperes",
    "C": "C coulomb coulombs",
    "F": "F farad farads",
    "T": "T tesla teslas",
    "Ω": "Ω ohm ohms",
    "H": "H henry henries",
    "Hz": "Hz hertz",
    "kHz": "kHz kilohertz",
    "MHz": "MHz megahertz",
    "GHz": "GHz gigahertz",
    "Pa": "Pa pascal pascals",
    "kPa": "kPa kilopascal kilopascals",
    "MPa": "MPa megapascal megapascals",
    "atm": "atm atmosphere atmospheres",
    "bar": "bar bars",
    "mol": "mol mols mole moles",
    "dB": "dB decibel decibels",
    "bit": "bit bits",
    "byte": "byte bytes",
    "KB": "KB kB kilobyte kilobytes",
    "MB": "MB megabyte megabytes",
    "GB": "GB gigabyte gigabytes",
    "$": "$ dollar dollars usd USD buck bucks",
    "cent": "cent cents ¢ penny pennies",
    "€": "€ euro euros EUR eur",
    "¥": "¥ yen yuan RMB rmb",
    "₹": "₹ rupee rupees",
    "peso": "peso pesos",
    "shilling": "shilling shillings",
    "nickel": "nickel nickels",
    "dime": "dime dimes",
    "quarter": "quarters",
}
# Things that a question counts: any of them, because the question says which.
_COUNTED = """
unit units way ways time times thing things item items object objects person persons people man men woman women boy
boys girl girls child children kid kids adult adults student students teacher teachers friend friends member members
player players team teams game games match matches worker workers employee employees customer customers passenger
passengers guest guests voter voters vote votes apple apples orange oranges banana bananas lemon lemons cherry
cherries grape grapes fruit fruits pear pears peach peaches tomato tomatoes potato potatoes carrot carrots egg eggs
cookie cookies cake cakes pie pies pizza pizzas slice slices sandwich sandwiches candy candies cupcake cupcakes muffin
muffins donut donuts chocolate chocolates bottle bottles can cans glass glasses jar jars bag bags box boxes basket
baskets bucket buckets crate crates package packages pack packs carton cartons piece pieces ball balls marble marbles
coin coins card cards die dice block blocks brick bricks tile tiles bead beads button buttons stamp stamps sticker
stickers toy toys doll dolls book books page pages chapter chapters word words letter letters digit digits number
numbers integer integers solution solutions root roots value values factor factors divisor divisors term terms element
elements subset subsets set sets pair pairs triple triples tuple tuples triangle triangles square squares rectangle
rectangles circle circles cube cubes polygon polygons side sides edge edges vertex vertices face faces diagonal
diagonals angle angles point points line lines segment segments region regions path paths step steps turn turns move
moves row rows column columns arrangement arrangements permutation permutations combination combinations outcome
outcomes possibility possibilities sequence sequences function functions car cars truck trucks bus buses train trains
bike bikes bicycle bicycles boat boats plane planes wheel wheels ticket tickets seat seats room rooms house houses
floor floors door doors window windows school schools class classes lesson lessons test tests question questions
problem problems pencil pencils pen pens crayon crayons notebook notebooks paper papers sheet sheets folder folders
flower flowers rose roses tree trees plant plants seed seeds leaf leaves dog dogs cat cats bird birds fish cow cows
horse horses pig pigs sheep goat goats chicken chickens duck ducks rabbit rabbits animal animals leg legs shirt shirts
shoe shoes sock socks hat hats dress dresses jacket jackets photo photos picture pictures song songs movie movies
video videos show shows trip trips lap laps mile round rounds goal goals message messages call calls email emails meal
meals serving servings bite bites gift gifts present presents bracelet bracelets necklace necklaces rope ropes string
strings stone stones rock rocks chair chairs table tables bed beds lamp lamps light lights phone phones computer
computers robot robots post posts fence pound-weight celsius fahrenheit neighbor neighbors visitor visitors patient
patients doctor doctors soldier soldiers sailor sailors farmer farmers
"""

UNIT_NAMES = {name: canonical for canonical, names in _MEASURED.items() for name in [canonical, *names.split()]}
GENERIC = frozenset(_COUNTED.split()) - set(UNIT_NAMES)
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
