//! English plurals of kinds, as kro forms them (by gobuffalo/flect): a CRD's name is its identity, so the rules may not drift.

/// Strength of a word of the dictionary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Also ends longer words.
    Suffix,
    /// Only the word itself.
    Exact,
    /// Ends longer words; its plural is not known as one.
    OneWay,
}

use Use::{Exact, OneWay, Suffix};

/// Words with their plural, and another plural that is left as it is.
#[rustfmt::skip]
const DICTIONARY: &[(&str, &str, &str, Use)] = &[
    ("aircraft", "aircraft", "", Suffix), ("beef", "beef", "beefs", Suffix), ("bison", "bison", "", Suffix),
    ("blues", "blues", "", OneWay), ("chassis", "chassis", "", Suffix), ("deer", "deer", "", Suffix),
    ("fish", "fish", "fishes", Suffix), ("moose", "moose", "", Suffix), ("police", "police", "", Suffix),
    ("salmon", "salmon", "salmons", Suffix), ("series", "series", "", Suffix), ("sheep", "sheep", "", Suffix),
    ("shrimp", "shrimp", "shrimps", Suffix), ("species", "species", "", Suffix),
    ("swine", "swine", "swines", Suffix), ("trout", "trout", "trouts", Suffix),
    ("tuna", "tuna", "tunas", Suffix), ("you", "you", "", Suffix), ("child", "children", "", Suffix),
    ("ox", "oxen", "", Exact), ("foot", "feet", "", Suffix), ("goose", "geese", "", Suffix),
    ("man", "men", "", Suffix), ("human", "humans", "", Suffix), ("louse", "lice", "", Exact),
    ("mouse", "mice", "", Suffix), ("tooth", "teeth", "", Suffix), ("woman", "women", "", Suffix),
    ("die", "dice", "", Exact), ("person", "people", "", Suffix), ("adieu", "adieux", "adieus", Suffix),
    ("fabliau", "fabliaux", "", Suffix), ("bureau", "bureaus", "bureaux", Suffix),
    ("criterion", "criteria", "", Suffix), ("ganglion", "ganglia", "ganglions", Suffix),
    ("lexicon", "lexica", "lexicons", Suffix), ("mitochondrion", "mitochondria", "mitochondrions", Suffix),
    ("noumenon", "noumena", "", Suffix), ("phenomenon", "phenomena", "", Suffix), ("taxon", "taxa", "", Suffix),
    ("media", "media", "", Suffix), ("medium", "media", "mediums", OneWay),
    ("stadium", "stadiums", "stadia", Suffix), ("aquarium", "aquaria", "aquariums", Suffix),
    ("auditorium", "auditoria", "auditoriums", Suffix), ("symposium", "symposia", "symposiums", Suffix),
    ("curriculum", "curriculums", "curricula", Suffix), ("quota", "quotas", "", Suffix),
    ("alumnus", "alumni", "alumnuses", Suffix), ("bacillus", "bacilli", "", Suffix),
    ("cactus", "cacti", "cactuses", Suffix), ("coccus", "cocci", "", Suffix),
    ("focus", "foci", "focuses", Suffix), ("locus", "loci", "locuses", Suffix),
    ("nucleus", "nuclei", "nucleuses", Suffix), ("octopus", "octupuses", "octopi", Suffix),
    ("radius", "radii", "radiuses", Suffix), ("syllabus", "syllabi", "", Suffix),
    ("corpus", "corpora", "corpuses", Suffix), ("genus", "genera", "", Suffix),
    ("alumna", "alumnae", "", Suffix), ("vertebra", "vertebrae", "", Suffix),
    ("differentia", "differentiae", "", Suffix), ("minutia", "minutiae", "", Suffix),
    ("vita", "vitae", "", Suffix), ("larva", "larvae", "", Suffix), ("postcava", "postcavae", "", Suffix),
    ("praecava", "praecavae", "", Suffix), ("uva", "uvae", "", Suffix), ("apex", "apices", "apexes", Suffix),
    ("codex", "codices", "codexes", Suffix), ("index", "indices", "indexes", Suffix),
    ("latex", "latices", "latexes", Suffix), ("vertex", "vertices", "vertexes", Suffix),
    ("vortex", "vortices", "vortexes", Suffix), ("appendix", "appendices", "appendixes", Suffix),
    ("radix", "radices", "radixes", Suffix), ("helix", "helices", "helixes", Suffix),
    ("axis", "axes", "", Exact), ("crisis", "crises", "", Suffix), ("ellipsis", "ellipses", "", OneWay),
    ("genesis", "geneses", "", Suffix), ("oasis", "oases", "", Suffix), ("thesis", "theses", "", Suffix),
    ("testis", "testes", "", Suffix), ("base", "bases", "", Suffix), ("basis", "bases", "", OneWay),
    ("alias", "aliases", "", Exact), ("vedalia", "vedalias", "", Suffix), ("use", "uses", "", Exact),
    ("abuse", "abuses", "", Suffix), ("cause", "causes", "", Suffix), ("clause", "clauses", "", Suffix),
    ("cruse", "cruses", "", Suffix), ("excuse", "excuses", "", Suffix), ("fuse", "fuses", "", Suffix),
    ("house", "houses", "", Suffix), ("misuse", "misuses", "", Suffix), ("muse", "muses", "", Suffix),
    ("pause", "pauses", "", Suffix), ("ache", "aches", "", Suffix), ("topaz", "topazes", "", Suffix),
    ("buffalo", "buffaloes", "buffalos", Suffix), ("potato", "potatoes", "", Suffix),
    ("tomato", "tomatoes", "", Suffix), ("equipment", "equipment", "", Suffix),
    ("information", "information", "", Suffix), ("jeans", "jeans", "", Suffix), ("money", "money", "", Suffix),
    ("news", "news", "", Suffix), ("rice", "rice", "", Suffix), ("dwarf", "dwarfs", "dwarves", Suffix),
    ("hoof", "hoofs", "hooves", Suffix), ("thief", "thieves", "", Suffix), ("chive", "chives", "", Suffix),
    ("hive", "hives", "", Suffix), ("move", "moves", "", Suffix), ("movie", "movies", "", Suffix),
    ("cookie", "cookies", "", Suffix), ("pretorium", "pretoriums", "", Suffix),
    ("agenda", "agendas", "", Suffix), ("formula", "formulas", "formulae", Suffix),
    ("shoe", "shoes", "", Suffix), ("toe", "toes", "", Exact), ("graffiti", "graffiti", "", Suffix),
];

/// Suffixes and what becomes of them; the first that fits counts.
#[rustfmt::skip]
const SUFFIXES: &[(&str, &str)] = &[
    ("tive", "tives"), ("eaf", "eaves"), ("oaf", "oaves"), ("afe", "aves"), ("arf", "arves"), ("rfe", "rves"),
    ("rf", "rves"), ("lf", "lves"), ("fe", "ves"), ("ay", "ays"), ("ey", "eys"), ("oy", "oys"),
    ("quy", "quies"), ("uy", "uys"), ("y", "ies"), ("eau", "eaux"), ("bula", "bulae"), ("dula", "bulae"),
    ("lula", "bulae"), ("nula", "bulae"), ("vula", "bulae"), ("hedron", "hedra"), ("ium", "ia"),
    ("seum", "seums"), ("eum", "ea"), ("oum", "oa"), ("stracum", "straca"), ("dum", "da"), ("elum", "ela"),
    ("ilum", "ila"), ("olum", "ola"), ("ulum", "ula"), ("llum", "lla"), ("ylum", "yla"), ("imum", "ima"),
    ("ernum", "erna"), ("gnum", "gna"), ("brum", "bra"), ("crum", "cra"), ("terum", "tera"), ("serum", "sera"),
    ("trum", "tra"), ("antum", "anta"), ("atum", "ata"), ("entum", "enta"), ("etum", "eta"), ("itum", "ita"),
    ("otum", "ota"), ("utum", "uta"), ("ctum", "cta"), ("ovum", "ova"), ("trix", "trices"), ("iasis", "iases"),
    ("mesis", "meses"), ("kinesis", "kineses"), ("resis", "reses"), ("gnosis", "gnoses"), ("opsis", "opses"),
    ("ysis", "yses"), ("ouse", "ouses"), ("lause", "lauses"), ("us", "uses"), ("ch", "ches"), ("io", "ios"),
    ("sh", "shes"), ("ss", "sses"), ("ez", "ezzes"), ("iz", "izzes"), ("tz", "tzes"), ("zz", "zzes"),
    ("ano", "anos"), ("lo", "los"), ("to", "tos"), ("oo", "oos"), ("o", "oes"), ("x", "xes"),
];

/// Returns the plural of a lower-case word; a plural is returned as it is.
pub(crate) fn pluralize(word: &str) -> String {
    if let Some((_, plural, ..)) = DICTIONARY.iter().find(|(singular, ..)| *singular == word) {
        return (*plural).to_owned();
    }
    let known = |(_, plural, other, used): &&(&str, &str, &str, Use)| {
        *used != OneWay && (*plural == word || *other == word)
    };
    if DICTIONARY.iter().any(|entry| known(&entry)) {
        return word.to_owned();
    }
    // Later words of the dictionary come before earlier ones, and all of them before the suffixes.
    let words = DICTIONARY.iter().rev().filter(|(.., used)| *used != Exact);
    let words = words.map(|(singular, plural, ..)| (*singular, *plural));
    for (singular, plural) in words.chain(SUFFIXES.iter().copied()) {
        if word.ends_with(plural) {
            return word.to_owned();
        }
        if let Some(stem) = word.strip_suffix(singular) {
            return format!("{stem}{plural}");
        }
    }
    if word.ends_with('s') { word.to_owned() } else { format!("{word}s") }
}

#[cfg(test)]
mod tests {
    use super::pluralize;

    /// Words and their plurals as flect 1.0.3 gives them.
    const TABLE: &str = "\
        webapp webapps, policy policies, class classes, box boxes, gateway gateways, database databases, \
        person people, settings settings, networkstack networkstacks, ingresstriangle ingresstriangles, \
        virus viruses, index indices, mesh meshes, repository repositories, status statuses, bus buses, \
        webindex webindices, photo photos, video videoes, studio studios, radius radii, matrix matrices, \
        analysis analyses, basis bases, leaf leaves, shelf shelves, knife knives, proxy proxies, key keys, \
        replica replicas, quota quotas, cache caches, house houses, warehouse warehouses, medium media, \
        datum data, stack stacks, schema schemas, media media, metadata metadata, series series, \
        tenantenvironment tenantenvironments, clustertenant clustertenants, s3bucket s3buckets, \
        rdspostgres rdspostgres, ekscluster eksclusters, podidentity podidentities, \
        elasticache elasticaches, cookie cookies, movie movies, address addresses, process processes, \
        cluster clusters, alias aliases, chassis chassis, potato potatoes, repo repoes, cargo cargoes, \
        halo halos, zoo zoos, axis axes, test tests, api apis, vpc vpcs, subnet subnets, lattice lattices, \
        voteapp voteapps, quiz quizzes, fez fezzes, topaz topazes, waltz waltzes, buzz buzzes, human humans, \
        woman women, superhuman superhumans, roof roofs, dwarf dwarfs, thief thieves, wife wives, \
        life lives, safe saves, baby babies, boy boys, guy guys, soliloquy soliloquies, bureau bureaus, \
        stadium stadiums, museum museums, forum forums, album albums, curriculum curriculums, \
        corpus corpora, genus genera, octopus octupuses, focus foci, crisis crises, news news, \
        equipment equipment, sheep sheep, fish fish, goose geese, mouse mice, tooth teeth, foot feet, \
        child children, grandchild grandchildren, ox oxen, die dice, use uses, reuse reuses, abuse abuses, \
        cause causes, clause clauses, pause pauses, move moves, hive hives, archive archives, \
        native natives, agenda agendas, formula formulas, shoe shoes, toe toes, hoof hoofs, you you";

    #[test]
    fn plurals_are_those_of_kro() {
        for pair in TABLE.split(',') {
            let (word, plural) = pair.trim().split_once(' ').unwrap();
            assert_eq!(pluralize(word), plural, "{word}");
        }
    }
}
