//! Cron schedules: five fields or a descriptor, with the error texts of Go's `robfig/cron`.

/// A field of a schedule: bounds and names of its values.
struct Field {
    low: i64,
    high: i64,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [
    Field { low: 0, high: 59, names: &[] },
    Field { low: 0, high: 23, names: &[] },
    Field { low: 1, high: 31, names: &[] },
    Field { low: 1, high: 12, names: MONTHS },
    Field { low: 0, high: 6, names: DAYS },
];

/// Validates a schedule.
pub(crate) fn validate(schedule: &str) -> Result<(), String> {
    let mut rest = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        // Kubernetes rejects time zones separately; the rest must still be a schedule.
        rest = schedule.split_once(' ').map_or("", |(_, rest)| rest).trim();
    }
    if rest.starts_with('@') {
        return validate_descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let given = fields.join(" ");
        return Err(format!("expected exactly {} fields, found {}: [{given}]", FIELDS.len(), fields.len()));
    }
    for (text, field) in fields.iter().zip(&FIELDS) {
        for part in text.split(',').filter(|part| !part.is_empty()) {
            validate_range(part, field)?;
        }
    }
    Ok(())
}

fn validate_descriptor(word: &str) -> Result<(), String> {
    match word {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match word.strip_prefix("@every ") {
            Some(every) if is_duration(every) => Ok(()),
            Some(every) => Err(format!(
                "failed to parse duration {word}: time: invalid duration {}",
                orlop_api::go_text::quote(every)
            )),
            None => Err(format!("unrecognized descriptor: {word}")),
        },
    }
}

/// Returns true for a Go duration.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let units = ["ns", "us", "µs", "ms", "s", "m", "h"];
        let Some(unit) = units.iter().filter(|unit| tail.starts_with(**unit)).max_by_key(|unit| unit.len())
        else {
            return false;
        };
        if number.parse::<f64>().is_err() {
            return false;
        }
        rest = &tail[unit.len()..];
    }
    true
}

fn validate_range(text: &str, field: &Field) -> Result<(), String> {
    let steps: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = steps.first().copied().unwrap_or_default().split('-').collect();
    let single = ends.len() == 1;
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?", ..] => (field.low, field.high),
        [one] => {
            let one = parse_number_or_name(one, field)?;
            (one, one)
        }
        [low, high] => (parse_number_or_name(low, field)?, parse_number_or_name(high, field)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match steps.as_slice() {
        [_] => 1,
        [_, step] => {
            let step = parse_number(step)?;
            if single {
                end = field.high;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    let Field { low, high, .. } = field;
    if start < *low {
        return Err(format!("beginning of range ({start}) below minimum ({low}): {text}"));
    }
    if end > *high {
        return Err(format!("end of range ({end}) above maximum ({high}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn parse_number_or_name(text: &str, field: &Field) -> Result<i64, String> {
    let lower = text.to_lowercase();
    match field.names.iter().position(|name| *name == lower) {
        Some(position) => Ok(field.low + i64::try_from(position).unwrap_or_default()),
        None => parse_number(text),
    }
}

fn parse_number(text: &str) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number),
        Err(_) => {
            let quoted = orlop_api::go_text::quote(text);
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {quoted}: invalid syntax"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_schedules_are_accepted() {
        for schedule in [
            "* * * * *",
            "*/5 0-12 1,15 jan-MAR mon",
            "0 0 ? * 0",
            "@hourly",
            "@every 1h30m",
            "  1  2 3 4 5 ",
            "5/15 * * * *",
        ] {
            assert_eq!(validate(schedule), Ok(()), "{schedule}");
        }
    }

    #[test]
    fn invalid_schedule_messages_match_go() {
        for (schedule, expected) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("", "expected exactly 5 fields, found 0: []"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ] {
            assert_eq!(validate(schedule), Err(expected.to_owned()), "{schedule}");
        }
    }
}
