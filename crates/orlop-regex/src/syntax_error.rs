//! Go's error texts.

/// Go's limit on a repeat count, and on the product of nested ones.
pub(crate) const REPEAT_MAX: u64 = 1000;

/// Converts an error of the `regex` crate into Go's text for the same pattern.
pub(crate) fn to_go(error: &str, pattern: &str) -> String {
    // The crate prints the pattern with a caret over several lines; the last line is the reason.
    let reason = error.lines().last().unwrap_or_default().trim().trim_start_matches("error: ");
    let (words, part) = translate_reason(reason, pattern).unwrap_or((reason, pattern));
    format!("error parsing regexp: {words}: `{part}`")
}

pub(crate) fn too_large(pattern: &str) -> String {
    format!("error parsing regexp: expression too large: `{pattern}`")
}

pub(crate) fn invalid_repeat(operator: &str) -> String {
    format!("error parsing regexp: invalid repeat count: `{operator}`")
}

/// Checks what Go refuses and the `regex` crate accepts: repeated repetition operators, and counts over 1000.
pub(crate) fn check_repetitions(pattern: &str) -> Result<(), String> {
    let mut previous: Option<usize> = None;
    let mut in_class = false;
    let mut at = 0;
    while let Some(character) = pattern[at..].chars().next() {
        let rest = &pattern[at..];
        let mut end = at + character.len_utf8();
        let repetition = if in_class { None } else { repetition(rest) };
        match (character, repetition) {
            (_, Some((length, most))) => {
                end = at + length;
                if most.is_some_and(|most| most > REPEAT_MAX) {
                    return Err(invalid_repeat(&pattern[at..end]));
                }
                end += usize::from(pattern[end..].starts_with('?'));
                if let Some(start) = previous {
                    let part = &pattern[start..end];
                    return Err(format!(
                        "error parsing regexp: invalid nested repetition operator: `{part}`"
                    ));
                }
                previous = Some(at);
                at = end;
                continue;
            }
            ('\\', None) if rest.starts_with("\\Q") && !in_class => {
                end = rest.find("\\E").map_or(pattern.len(), |quoted| at + quoted + 2);
            }
            ('\\', None) => end += rest[1..].chars().next().map_or(0, char::len_utf8),
            ('[', None) if !in_class => {
                in_class = true;
                let opening = if rest.starts_with("[^") { 2 } else { 1 };
                end = at + opening + usize::from(rest[opening..].starts_with(']'));
            }
            (']', None) => in_class = false,
            // The question mark of a group is not a repetition.
            ('(', None) if rest.starts_with("(?") => end += 1,
            _ => {}
        }
        previous = None;
        at = end;
    }
    Ok(())
}

/// Returns the length of the repetition operator at the start of `text`, and its largest count.
pub(crate) fn repetition(text: &str) -> Option<(usize, Option<u64>)> {
    if text.starts_with(['*', '+', '?']) {
        return Some((1, None));
    }
    let inner = text.strip_prefix('{')?.split_once('}')?.0;
    let (least, most) = inner.split_once(',').unwrap_or((inner, inner));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if least.is_empty() || !digits(least) || !digits(most) {
        return None;
    }
    let count = |text: &str| if text.is_empty() { 0 } else { text.parse().unwrap_or(u64::MAX) };
    Some((inner.len() + 2, Some(count(least).max(count(most)))))
}

/// Returns Go's text for a reason, and the part of the pattern that Go names.
fn translate_reason<'p>(reason: &str, pattern: &'p str) -> Option<(&'static str, &'p str)> {
    match reason {
        "unclosed group" => Some(("missing closing )", pattern)),
        "unopened group" => Some(("unexpected )", pattern)),
        "unclosed character class" => Some(("missing closing ]", open_class(pattern)?)),
        "repetition operator missing expression" => {
            Some(("missing argument to repetition operator", operator(pattern)?))
        }
        "incomplete escape sequence, reached end of pattern prematurely" => {
            Some(("trailing backslash at end of expression", ""))
        }
        "unrecognized escape sequence" | "backreferences are not supported" => {
            Some(("invalid escape sequence", bad_escape(pattern)?))
        }
        "invalid character class range, the start must be <= the end" => {
            Some(("invalid character class range", backward_range(pattern)?))
        }
        "invalid repetition count range, the start must be <= the end" => {
            let start = pattern.find('{')?;
            let end = start + pattern[start..].find('}')? + 1;
            Some(("invalid repeat count", &pattern[start..end]))
        }
        _ if reason.starts_with("look-around") => {
            let start = ["(?=", "(?!", "(?<"].iter().filter_map(|opening| pattern.find(opening)).min()?;
            Some(("invalid or unsupported Perl syntax", &pattern[start..start + 3]))
        }
        _ => None,
    }
}

/// Returns the unclosed class: the last one opened.
fn open_class(pattern: &str) -> Option<&str> {
    let mut open = None;
    let mut escaped = false;
    for (index, character) in pattern.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' if open.is_none() => open = Some(index),
            ']' if open.is_some_and(|start: usize| index > start + 1) => open = None,
            _ => {}
        }
    }
    open.map(|start| &pattern[start..])
}

/// Returns the first repetition operator without an operand.
fn operator(pattern: &str) -> Option<&str> {
    let mut before = '(';
    for (index, character) in pattern.char_indices() {
        if matches!(character, '*' | '+' | '?') && matches!(before, '(' | '|') {
            return Some(&pattern[index..index + 1]);
        }
        before = character;
    }
    None
}

/// Returns the first unknown escape sequence.
fn bad_escape(pattern: &str) -> Option<&str> {
    let mut rest = pattern;
    while let Some(start) = rest.find('\\') {
        let letter = rest[start + 1..].chars().next()?;
        let end = start + 1 + letter.len_utf8();
        let known = "abBAzCdDsSwWQEpPfnrtvx".contains(letter);
        if letter.is_ascii_alphanumeric() && !known {
            return Some(&rest[start..end]);
        }
        rest = &rest[end..];
    }
    None
}

/// Returns the first range whose start is greater than its end.
fn backward_range(pattern: &str) -> Option<&str> {
    let characters: Vec<(usize, char)> = pattern.char_indices().collect();
    characters.windows(3).find_map(|window| match window {
        [(start, from), (_, '-'), (end, to)] if from > to && *to != ']' => {
            Some(&pattern[*start..end + to.len_utf8()])
        }
        _ => None,
    })
}
