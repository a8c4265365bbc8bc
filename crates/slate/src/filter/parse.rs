//! Parsing of filters, with the limits on them.

use bson::{Bson, Document, RawBson};

use super::{Comparison, Filter, Pattern, Predicate, ValueSet};
use crate::{
    error::{Error, Result},
    key,
    path::Path,
};

/// Deepest nesting of `$and`, `$or`, `$elemMatch` and the like.
const DEPTH_MAX: usize = 32;
/// Largest compiled regular expression, in bytes.
const REGEX_SIZE_MAX: usize = 1 << 20;

impl Filter {
    /// Parses a filter document.
    pub fn parse(document: &Document) -> Result<Self> {
        parse_filter(document, 0)
    }
}

fn parse_filter(document: &Document, depth: usize) -> Result<Filter> {
    if depth > DEPTH_MAX {
        return Err(Error::invalid(format!("a filter is nested at most {DEPTH_MAX} levels deep")));
    }
    let mut parts = Vec::with_capacity(document.len());
    for (name, value) in document {
        match name.as_str() {
            "$and" => parts.extend(parse_list(name, value, depth)?),
            "$or" => parts.push(Filter::Or(parse_list(name, value, depth)?)),
            "$nor" => parts.push(Filter::Nor(parse_list(name, value, depth)?)),
            "$comment" => {}
            _ if name.starts_with('$') => {
                return Err(Error::invalid(format!("unknown top level operator: {name}")));
            }
            _ => {
                let path = Path::parse(name)?;
                for predicate in parse_field(value, depth)? {
                    parts.push(Filter::Field(path.clone(), predicate));
                }
            }
        }
    }
    Ok(match <[Filter; 1]>::try_from(parts) {
        Ok([only]) => only,
        Err(parts) => Filter::And(parts),
    })
}

fn parse_list(name: &str, value: &Bson, depth: usize) -> Result<Vec<Filter>> {
    let list = value.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| Error::invalid(format!("{name} must be a nonempty array")))?;
    list.iter()
        .map(|part| match part {
            Bson::Document(part) => parse_filter(part, depth + 1),
            _ => Err(Error::invalid(format!("{name} entries must be documents"))),
        })
        .collect()
}

fn parse_field(value: &Bson, depth: usize) -> Result<Vec<Predicate>> {
    match value {
        Bson::Document(operators) if is_operators(operators) => parse_operators(operators, depth),
        Bson::RegularExpression(regex) => {
            let pattern = Pattern::compile(regex.pattern.as_str(), regex.options.as_str())?;
            Ok(vec![Predicate::Regex(Box::new(pattern))])
        }
        _ => Ok(vec![Predicate::Equal(raw(value)?)]),
    }
}

fn is_operators(document: &Document) -> bool {
    document.keys().next().is_some_and(|name| name.starts_with('$') && name != "$ref" && name != "$id")
}

fn parse_operators(operators: &Document, depth: usize) -> Result<Vec<Predicate>> {
    if depth > DEPTH_MAX {
        return Err(Error::invalid(format!("a filter is nested at most {DEPTH_MAX} levels deep")));
    }
    let mut predicates = Vec::with_capacity(operators.len());
    for (name, value) in operators {
        let compare = |comparison| raw(value).map(|value| Predicate::Compare(comparison, value));
        predicates.push(match name.as_str() {
            "$eq" => Predicate::Equal(raw(value)?),
            "$ne" => not(parse_equal_or_regex(value)?),
            "$gt" => compare(Comparison::Greater)?,
            "$gte" => compare(Comparison::GreaterOrEqual)?,
            "$lt" => compare(Comparison::Less)?,
            "$lte" => compare(Comparison::LessOrEqual)?,
            "$in" => Predicate::In(parse_set(name, value)?),
            "$nin" => not(Predicate::In(parse_set(name, value)?)),
            "$exists" => Predicate::Exists(truthy(value)),
            "$size" => Predicate::Size(parse_size(value)?),
            "$regex" => Predicate::Regex(Box::new(parse_regex(value, operators.get("$options"))?)),
            // Read together with `$regex`.
            "$options" if operators.contains_key("$regex") => continue,
            "$all" => parse_all(value, depth)?,
            "$elemMatch" => parse_element(value, depth)?,
            "$not" => parse_not(value, depth)?,
            "$type" => Predicate::Type(parse_types(value)?),
            "$mod" => parse_modulo(value)?,
            _ => return Err(Error::invalid(format!("unknown operator: {name}"))),
        });
    }
    Ok(predicates)
}

fn parse_equal_or_regex(value: &Bson) -> Result<Predicate> {
    match value {
        Bson::RegularExpression(_) => Err(Error::invalid("Can't have regex as arg to $ne.")),
        _ => Ok(Predicate::Equal(raw(value)?)),
    }
}

fn parse_set(name: &str, value: &Bson) -> Result<ValueSet> {
    let list = value.as_array().ok_or_else(|| Error::invalid(format!("{name} needs an array")))?;
    let (mut values, mut patterns) = (Vec::new(), Vec::new());
    for value in list {
        match value {
            Bson::RegularExpression(regex) => {
                patterns.push(Pattern::compile(regex.pattern.as_str(), regex.options.as_str())?);
            }
            _ => values.push(raw(value)?),
        }
    }
    let mut keys: Vec<_> = values.iter().map(|value| key::encode(value.as_raw_bson_ref())).collect();
    keys.sort_unstable();
    keys.dedup();
    Ok(ValueSet { values, keys, patterns })
}

fn parse_size(value: &Bson) -> Result<usize> {
    let size = as_integer(value).and_then(|size| usize::try_from(size).ok());
    size.ok_or_else(|| Error::invalid("$size must be a non-negative integer"))
}

fn parse_regex(value: &Bson, options: Option<&Bson>) -> Result<Pattern> {
    let options = match options {
        None => "",
        Some(Bson::String(options)) => options,
        Some(_) => return Err(Error::invalid("$options has to be a string")),
    };
    match value {
        Bson::String(pattern) => Pattern::compile(pattern, options),
        Bson::RegularExpression(regex) => {
            let own = regex.options.as_str();
            Pattern::compile(regex.pattern.as_str(), if options.is_empty() { own } else { options })
        }
        _ => Err(Error::invalid("$regex has to be a string")),
    }
}

fn parse_all(value: &Bson, depth: usize) -> Result<Predicate> {
    let list = value.as_array().ok_or_else(|| Error::invalid("$all needs an array"))?;
    if list.is_empty() {
        // Matches nothing, as in MongoDB.
        return Ok(Predicate::In(parse_set("$in", &Bson::Array(Vec::new()))?));
    }
    let part = |value: &Bson| match value {
        Bson::Document(operators) if operators.contains_key("$elemMatch") => {
            parse_operators(operators, depth + 1).map(Predicate::All)
        }
        _ => parse_field(value, depth + 1).map(Predicate::All),
    };
    list.iter().map(part).collect::<Result<_>>().map(Predicate::All)
}

fn parse_element(value: &Bson, depth: usize) -> Result<Predicate> {
    let Bson::Document(document) = value else {
        return Err(Error::invalid("$elemMatch needs an Object"));
    };
    let logical = |name: &str| matches!(name, "$and" | "$or" | "$nor");
    if is_operators(document) && !document.keys().any(|name| logical(name)) {
        Ok(Predicate::Element(parse_operators(document, depth + 1)?))
    } else {
        Ok(Predicate::ElementFilter(Box::new(parse_filter(document, depth + 1)?)))
    }
}

fn parse_not(value: &Bson, depth: usize) -> Result<Predicate> {
    match value {
        Bson::Document(operators) if is_operators(operators) => {
            Ok(not(Predicate::All(parse_operators(operators, depth + 1)?)))
        }
        Bson::RegularExpression(_) => Ok(not(Predicate::All(parse_field(value, depth + 1)?))),
        _ => Err(Error::invalid("$not needs a regex or a document")),
    }
}

fn parse_types(value: &Bson) -> Result<Vec<u8>> {
    let one = |value: &Bson| -> Result<Vec<u8>> {
        let named = match value {
            Bson::String(name) => type_by_name(name),
            _ => as_integer(value).and_then(|code| {
                let code = if code == -1 { 255 } else { code };
                u8::try_from(code).ok().map(|code| vec![code])
            }),
        };
        named.ok_or_else(|| Error::invalid(format!("Unknown type name alias: {value}")))
    };
    match value {
        Bson::Array(list) => Ok(list.iter().map(one).collect::<Result<Vec<_>>>()?.concat()),
        _ => one(value),
    }
}

fn type_by_name(name: &str) -> Option<Vec<u8>> {
    Some(vec![match name {
        "number" => return Some(vec![1, 16, 18, 19]),
        "double" => 1,
        "string" => 2,
        "object" => 3,
        "array" => 4,
        "binData" => 5,
        "undefined" => 6,
        "objectId" => 7,
        "bool" => 8,
        "date" => 9,
        "null" => 10,
        "regex" => 11,
        "javascript" => 13,
        "symbol" => 14,
        "int" => 16,
        "timestamp" => 17,
        "long" => 18,
        "decimal" => 19,
        "minKey" => 255,
        "maxKey" => 127,
        _ => return None,
    }])
}

fn parse_modulo(value: &Bson) -> Result<Predicate> {
    let operands: Option<Vec<i64>> = value.as_array().and_then(|list| list.iter().map(as_integer).collect());
    match operands.as_deref() {
        Some([0, _]) => Err(Error::invalid("divisor cannot be 0")),
        Some([divisor, remainder]) => Ok(Predicate::Modulo(*divisor, *remainder)),
        _ => Err(Error::invalid("malformed mod, needs to be an array of two numbers")),
    }
}

impl Pattern {
    pub(super) fn compile(pattern: &str, options: &str) -> Result<Self> {
        let mut builder = regex::RegexBuilder::new(&with_ascii_classes(pattern));
        builder.size_limit(REGEX_SIZE_MAX);
        for option in options.chars() {
            match option {
                'i' => builder.case_insensitive(true),
                'm' => builder.multi_line(true),
                's' => builder.dot_matches_new_line(true),
                'x' => builder.ignore_whitespace(true),
                'u' => &mut builder,
                _ => return Err(Error::invalid(format!("invalid flag in regex options: {option}"))),
            };
        }
        let regex = builder
            .build()
            .map_err(|error| Error::invalid(format!("Regular expression is invalid: {error}")))?;
        let prefix = options.is_empty().then(|| literal_prefix(pattern)).flatten();
        Ok(Self { regex, prefix })
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// Spells Perl's classes out as ASCII, which is what they mean in PCRE.
fn with_ascii_classes(pattern: &str) -> String {
    let mut result = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    // Classes nest, so a spelled-out class is valid inside another.
    let mut depth = 0_usize;
    while let Some(character) = characters.next() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if character != '\\' {
            result.push(character);
            continue;
        }
        match characters.next() {
            Some('d') => result.push_str("[0-9]"),
            Some('D') => result.push_str("[^0-9]"),
            Some('w') => result.push_str("[0-9A-Za-z_]"),
            Some('W') => result.push_str("[^0-9A-Za-z_]"),
            Some('s') => result.push_str(r"[\t\n\x0b\x0c\r ]"),
            Some('S') => result.push_str(r"[^\t\n\x0b\x0c\r ]"),
            Some('b') if depth == 0 => result.push_str(r"(?-u:\b)"),
            Some('B') if depth == 0 => result.push_str(r"(?-u:\B)"),
            Some(other) => result.extend(['\\', other]),
            None => result.push('\\'),
        }
    }
    result
}

/// Returns the literal that an anchored pattern begins with, if it is simple enough to see.
fn literal_prefix(pattern: &str) -> Option<String> {
    let rest = pattern.strip_prefix('^')?;
    if rest.contains('|') {
        return None;
    }
    let special = |c: char| !(c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | ':' | '/' | '@' | ','));
    let end = rest.find(special).unwrap_or(rest.len());
    let mut literal = &rest[..end];
    // A quantifier makes the character before it optional.
    if rest[end..].starts_with(['?', '*', '{']) {
        let last = literal.chars().next_back()?;
        literal = &literal[..literal.len() - last.len_utf8()];
    }
    (!literal.is_empty()).then(|| literal.to_owned())
}

fn not(predicate: Predicate) -> Predicate {
    Predicate::Not(Box::new(predicate))
}

fn raw(value: &Bson) -> Result<RawBson> {
    RawBson::try_from(value.clone()).map_err(|error| Error::invalid(error.to_string()))
}

fn truthy(value: &Bson) -> bool {
    match value {
        Bson::Boolean(value) => *value,
        Bson::Null | Bson::Undefined => false,
        _ => as_integer(value) != Some(0),
    }
}

/// Returns the value of a whole number of any type.
pub(crate) fn as_integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(value) => Some(i64::from(*value)),
        Bson::Int64(value) => Some(*value),
        Bson::Double(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(*value as i64),
        _ => None,
    }
}
