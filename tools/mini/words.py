"""Word lists and small facts of the bundled model's training text. Written for this project; public facts only."""


def _pairs(text):
    """'a:b, c:d' -> [('a', 'b'), ('c', 'd')]"""
    return [tuple(p.strip().split(":")) for p in text.replace("\n", " ").split(",") if p.strip()]


def _words(text):
    return text.split()


CAPITALS = _pairs("""France:Paris, Germany:Berlin, Italy:Rome, Spain:Madrid, Portugal:Lisbon, England:London, Ireland:Dublin,
Norway:Oslo, Sweden:Stockholm, Finland:Helsinki, Denmark:Copenhagen, Poland:Warsaw, Austria:Vienna, Hungary:Budapest,
Greece:Athens, Turkey:Ankara, Russia:Moscow, Ukraine:Kyiv, Belgium:Brussels, Romania:Bucharest, Bulgaria:Sofia, Serbia:Belgrade,
Croatia:Zagreb, Iceland:Reykjavik, Egypt:Cairo, Kenya:Nairobi, Morocco:Rabat, Nigeria:Abuja, Ghana:Accra, Ethiopia:Addis Ababa,
China:Beijing, Japan:Tokyo, India:New Delhi, Nepal:Kathmandu, Thailand:Bangkok, Vietnam:Hanoi, Indonesia:Jakarta, Iran:Tehran,
Iraq:Baghdad, Canada:Ottawa, Mexico:Mexico City, Cuba:Havana, Brazil:Brasilia, Argentina:Buenos Aires, Chile:Santiago, Peru:Lima,
Colombia:Bogota, Ecuador:Quito, Uruguay:Montevideo, Australia:Canberra""")
CONTINENTS = _pairs("""France:Europe, Germany:Europe, Italy:Europe, Spain:Europe, Norway:Europe, Poland:Europe, Greece:Europe,
Egypt:Africa, Kenya:Africa, Morocco:Africa, Nigeria:Africa, Ghana:Africa, Ethiopia:Africa, China:Asia, Japan:Asia, India:Asia,
Nepal:Asia, Thailand:Asia, Vietnam:Asia, Iran:Asia, Iraq:Asia, Canada:North America, Mexico:North America, Cuba:North America,
Brazil:South America, Argentina:South America, Chile:South America, Peru:South America, Colombia:South America""")
LANGUAGES = _pairs("""France:French, Germany:German, Italy:Italian, Spain:Spanish, Portugal:Portuguese, England:English,
Norway:Norwegian, Sweden:Swedish, Finland:Finnish, Denmark:Danish, Poland:Polish, Hungary:Hungarian, Greece:Greek, Turkey:Turkish,
Russia:Russian, Japan:Japanese, Thailand:Thai, Brazil:Portuguese, Mexico:Spanish, Egypt:Arabic""")
COLOURS = _pairs("""the sky:blue, grass:green, snow:white, coal:black, a banana:yellow, a strawberry:red, a carrot:orange,
a lemon:yellow, milk:white, blood:red, an elephant:grey, the sun:yellow, a tomato:red, a cucumber:green, chocolate:brown, gold:yellow,
silver:grey, an eggplant:purple, a flamingo:pink, a frog:green, a cherry:red, spinach:green, a polar bear:white, a raven:black""")
OPPOSITES = _pairs("""hot:cold, big:small, tall:short, fast:slow, up:down, left:right, open:closed, light:dark, happy:sad, old:new,
early:late, rich:poor, hard:soft, wet:dry, full:empty, heavy:weightless, near:far, strong:weak, loud:quiet, clean:dirty, deep:shallow,
wide:narrow, thick:thin, young:aged, true:false, day:night, black:white, first:last, push:pull, buy:sell, give:take, win:lose,
love:hate, begin:end, above:below, inside:outside, before:after, always:never, cheap:expensive, sweet:sour, brave:afraid, smooth:rough,
sharp:blunt, awake:asleep, alive:dead, friend:enemy, north:south, east:west, summer:winter, arrive:leave""")
YOUNG = _pairs("""cat:kitten, dog:puppy, cow:calf, horse:foal, sheep:lamb, goat:kid, pig:piglet, hen:chick, duck:duckling, goose:gosling,
swan:cygnet, lion:cub, bear:cub, deer:fawn, kangaroo:joey, owl:owlet, eagle:eaglet, frog:tadpole, seal:pup, elephant:calf""")
SOUNDS = _pairs("""dog:barks, cat:meows, cow:moos, horse:neighs, sheep:bleats, pig:oinks, duck:quacks, lion:roars, owl:hoots, bee:buzzes,
snake:hisses, wolf:howls, frog:croaks, mouse:squeaks, hen:clucks""")
ELEMENTS = _pairs("""hydrogen:H, helium:He, lithium:Li, carbon:C, nitrogen:N, oxygen:O, fluorine:F, neon:Ne, sodium:Na, magnesium:Mg,
aluminium:Al, silicon:Si, phosphorus:P, sulfur:S, chlorine:Cl, argon:Ar, potassium:K, calcium:Ca, titanium:Ti, iron:Fe, nickel:Ni,
copper:Cu, zinc:Zn, silver:Ag, tin:Sn, iodine:I, gold:Au, mercury:Hg, lead:Pb, uranium:U""")
PAST = _pairs("""go:went, see:saw, eat:ate, run:ran, take:took, give:gave, write:wrote, read:read, drink:drank, sing:sang, swim:swam,
begin:began, break:broke, speak:spoke, drive:drove, fly:flew, grow:grew, know:knew, throw:threw, buy:bought, bring:brought,
think:thought, teach:taught, catch:caught, find:found, sleep:slept, keep:kept, leave:left, make:made, win:won""")
PLURALS = _pairs("""child:children, man:men, woman:women, foot:feet, tooth:teeth, mouse:mice, goose:geese, sheep:sheep, fish:fish, ox:oxen,
leaf:leaves, knife:knives, wolf:wolves, city:cities, baby:babies, box:boxes, potato:potatoes, person:people, cat:cats, book:books""")
COUNTS = _pairs("""legs a spider has:8, legs a dog has:4, legs an insect has:6, legs a bird has:2, days a week has:7,
months a year has:12, hours a day has:24, minutes an hour has:60, seconds a minute has:60, sides a triangle has:3, sides a square has:4,
sides a hexagon has:6, sides a pentagon has:5, wheels a bicycle has:2, wheels a car has:4, arms an octopus has:8, letters the alphabet has:26,
planets the solar system has:8, players a football team has:11, strings a violin has:4, days a leap year has:366, eggs a dozen has:12""")
CURRENCIES = _pairs("""Japan:the yen, England:the pound, France:the euro, Russia:the ruble, China:the yuan, India:the rupee, Mexico:the peso,
Canada:the dollar, Poland:the zloty, Sweden:the krona, Thailand:the baht, Turkey:the lira, Germany:the euro, Brazil:the real""")
PLANETS = _words("Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune")
ORDINALS = _words("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth")
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _words("January February March April May June July August September October November December")
ROMAN = _words("I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX")

# category -> (pairs, statement with {k} and {v}, questions)
FACTS = {
    "capital": (CAPITALS, "The capital of {k} is {v}.", [
        "What is the capital of {k}?", "What's the capital of {k}?", "Name the capital of {k}.", "Which city is the capital of {k}?",
        "Tell me the capital of {k}.", "capital of {k}?", "Do you know the capital of {k}?", "{k} has which capital?"]),
    "continent": (CONTINENTS, "{k} is in {v}.", [
        "Which continent is {k} in?", "On which continent is {k}?", "What continent is {k} on?", "Name the continent of {k}.",
        "{k} is on which continent?", "Tell me the continent of {k}."]),
    "language": (LANGUAGES, "People in {k} speak {v}.", [
        "Which language do people speak in {k}?", "What language is spoken in {k}?", "Name the main language of {k}.",
        "What do people speak in {k}?", "Tell me the language of {k}.", "What is the language of {k}?"]),
    "colour": (COLOURS, "The colour of {k} is {v}.", [
        "What colour is {k}?", "What is the colour of {k}?", "Which colour has {k}?", "Tell me the colour of {k}.", "Name the colour of {k}.",
        "Do you know what colour {k} is?"]),
    "opposite": (OPPOSITES, "The opposite of {k} is {v}.", [
        "What is the opposite of {k}?", "What's the opposite of {k}?", "Give me the opposite of {k}.", "opposite of {k}?",
        "Which word is the opposite of {k}?", "Name the opposite of {k}.", "Tell me the opposite of the word {k}."]),
    "young": (YOUNG, "A young {k} is called a {v}.", [
        "What is a young {k} called?", "What do you call a baby {k}?", "What is the young of a {k}?", "Name the young of a {k}.",
        "How is a young {k} called?", "What is a baby {k} called?"]),
    "sound": (SOUNDS, "A {k} {v}.", [
        "What sound does a {k} make?", "Which sound does a {k} make?", "How does a {k} sound?", "What does a {k} do to make noise?",
        "Tell me the sound of a {k}."]),
    "element": (ELEMENTS, "The chemical symbol of {k} is {v}.", [
        "What is the chemical symbol of {k}?", "What's the symbol for {k}?", "Give me the chemical symbol for {k}.", "Which symbol does {k} have?",
        "Name the chemical symbol of {k}.", "chemical symbol of {k}?"]),
    "past": (PAST, "The past tense of {k} is {v}.", [
        "What is the past tense of {k}?", "Give me the past tense of {k}.", "past tense of {k}?", "What's the past of {k}?",
        "Tell me the past tense of {k}.", "Put {k} into the past tense."]),
    "plural": (PLURALS, "The plural of {k} is {v}.", [
        "What is the plural of {k}?", "Give me the plural of {k}.", "plural of {k}?", "What's the plural form of {k}?", "Tell me the plural of {k}.",
        "Name the plural of {k}."]),
    "count": (COUNTS, "The number of {k} is {v}.", [
        "What is the number of {k}?", "Tell me the number of {k}.", "Do you know the number of {k}?", "Give me the number of {k}.",
        "Say the number of {k}."]),
    "currency": (CURRENCIES, "People in {k} pay with {v}.", [
        "What is the currency of {k}?", "Which currency does {k} use?", "What money is used in {k}?", "How do people pay in {k}?",
        "Name the currency of {k}.", "Tell me the currency of {k}."]),
    "planet": (list(zip(ORDINALS, PLANETS)), "The {k} planet from the sun is {v}.", [
        "What is the {k} planet from the sun?", "Which planet is the {k} from the sun?", "Name the {k} planet from the sun.",
        "Tell me the {k} planet."]),
    "day_after": ([(DAYS[i], DAYS[(i + 1) % 7]) for i in range(7)], "The day after {k} is {v}.", [
        "Which day comes after {k}?", "What is the day after {k}?", "What day follows {k}?", "Name the day after {k}."]),
    "day_before": ([(DAYS[i], DAYS[i - 1]) for i in range(7)], "The day before {k} is {v}.", [
        "Which day comes before {k}?", "What is the day before {k}?", "Name the day before {k}.", "Tell me the day before {k}."]),
    "month_after": ([(MONTHS[i], MONTHS[(i + 1) % 12]) for i in range(12)], "The month after {k} is {v}.", [
        "Which month comes after {k}?", "What is the month after {k}?", "What month follows {k}?", "Name the month after {k}."]),
    "month_before": ([(MONTHS[i], MONTHS[i - 1]) for i in range(12)], "The month before {k} is {v}.", [
        "Which month comes before {k}?", "What is the month before {k}?", "Name the month before {k}.", "Tell me the month before {k}."]),
    "month_number": (list(zip(ORDINALS, MONTHS)), "The {k} month of the year is {v}.", [
        "What is the {k} month of the year?", "Which month is the {k} of the year?", "Name the {k} month.", "Tell me the {k} month of the year."]),
    "roman": ([(str(i + 1), r) for i, r in enumerate(ROMAN)], "The Roman numeral for {k} is {v}.", [
        "What is {k} as a Roman numeral?", "Write {k} as a Roman numeral.", "What is the Roman numeral for {k}?", "Give me the Roman numeral for {k}."]),
}

ANIMALS = _words("""cat dog cow horse sheep goat pig hen duck goose swan lion bear deer kangaroo owl eagle frog seal elephant tiger zebra camel
monkey rabbit fox wolf mouse snake whale shark dolphin penguin parrot turtle lizard spider bee ant crab""")
FOODS = _words("""apple banana cherry lemon orange grape pear peach plum melon mango carrot potato onion tomato bean bread butter cheese rice
soup cake honey pepper salt sugar milk egg noodle cookie""")
THINGS = _words("""table chair window door lamp book pencil paper bottle basket bucket ladder hammer candle mirror pillow blanket carpet clock
bicycle train ship rocket bridge castle tower garden forest river island mountain valley desert ocean beach village market school library museum
hospital station airport engine kitchen cabin violin guitar piano drum trumpet ball kite puzzle coin ticket letter camera phone""")
COLOUR_NAMES = _words("red blue green yellow orange purple pink brown black white grey silver")
SPELL = sorted(set(ANIMALS + FOODS + THINGS + COLOUR_NAMES + _words("""hello world water music friend family summer winter spring autumn
yesterday morning evening happy quick silent purple simple planet doctor teacher farmer sailor painter number language computer keyboard
question answer strawberry chocolate butterfly umbrella sandwich elephant holiday birthday country capital mississippi""")))
SORT_WORDS = sorted(set(ANIMALS + FOODS + THINGS))

NAMES = _words("""Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Mia Noah Olga Paul Rosa Sam Tina Victor Wendy Xavier Yara Zoe
Adam Bella Carlos Diana Erik Fiona George Hanna Ivan Julia Karl Laura Marco Nina Oscar Petra Quentin Rita Simon Tara Uma Vera Walter Alice Boris
Celia Dario Elena Frank Gina Hugo Ines Jonas Kira Liam Maya Nora Otto Pia Rafael Sofia Theo Ursula Viola""")
CITIES = _words("""Paris Berlin Rome Madrid Lisbon London Dublin Oslo Stockholm Helsinki Warsaw Vienna Budapest Athens Moscow Kyiv Cairo Nairobi
Beijing Tokyo Bangkok Hanoi Ottawa Havana Santiago Lima Quito Canberra Hamburg Munich Venice Boston Chicago Denver Seattle Toronto Sydney""")
DRINKS = _words("tea coffee water milk juice cocoa lemonade soda")
HOBBIES = _words("chess painting running cooking fishing dancing sailing reading swimming climbing gardening singing")
JOBS = _words("doctor teacher farmer sailor painter baker pilot nurse singer driver writer lawyer")
PET_NAMES = _words("Rex Luna Max Bella Rocky Daisy Milo Coco Simba Nala Bruno Lucky Pepper Oreo Ziggy")
