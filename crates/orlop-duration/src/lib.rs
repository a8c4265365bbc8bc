//! Durations in Go's notation: `1h30m`, `-1.5s`, `300ms`, `0`.
//!
//! Flags, configuration files, query parameters and expressions all use it, so there is one parser with the limits and
//! errors of Go's `time.ParseDuration`, and one formatter. A duration is a number of nanoseconds in 64 bits. Nothing
//! recurses or allocates while parsing: texts come from clients that are not authenticated yet.

mod parser;

use std::{fmt, time::Duration};

pub use parser::parse;

/// A text that is not a duration. Displayed as Go does, without the prefix `time: `.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The text has another form, or the duration is out of range.
    Invalid(String),
    /// A number has no unit.
    MissingUnit(String),
    /// A number has a unit that is none of Go's.
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

impl std::error::Error for ParseError {}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => write!(f, "invalid duration {}", Quoted(text)),
            Self::MissingUnit(text) => write!(f, "missing unit in duration {}", Quoted(text)),
            Self::UnknownUnit { unit, text } => {
                write!(f, "unknown unit {} in duration {}", Quoted(unit), Quoted(text))
            }
        }
    }
}

/// A text as Go's package `time` quotes it: bytes beyond printable ASCII are escaped one by one.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for byte in self.0.bytes() {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                b' '..0x80 => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_str("\"")
    }
}

/// Parses a duration that is not negative.
pub fn parse_unsigned(text: &str) -> Result<Duration, ParseError> {
    let nanoseconds = parse(text)?;
    u64::try_from(nanoseconds).map(Duration::from_nanos).map_err(|_| ParseError::Invalid(text.to_owned()))
}

/// Formats nanoseconds as Go does: `1h30m0s`, `1.5s`, `300ms`, `0s`.
pub fn format(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let absolute = nanoseconds.unsigned_abs();
    let decimal = |value: u64, unit: u64| {
        let (whole, rest) = (value / unit, value % unit);
        let digits = format!("{:0width$}", rest, width = unit.ilog10() as usize);
        let digits = digits.trim_end_matches('0');
        if rest == 0 { whole.to_string() } else { format!("{whole}.{digits}") }
    };
    let text = match absolute {
        0 => "0s".to_owned(),
        1..1_000 => format!("{absolute}ns"),
        1_000..1_000_000 => format!("{}\u{b5}s", decimal(absolute, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(absolute, 1_000_000)),
        _ => {
            let minutes = absolute / 60_000_000_000;
            let seconds = decimal(absolute % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

/// Formats a duration as [`format`] does. One that exceeds Go's range is shown as the longest.
pub fn format_duration(duration: Duration) -> String {
    format(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}
