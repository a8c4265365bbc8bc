//! The parts of timestamps and durations.
//!
//! Without a time zone, a timestamp's parts are those of UTC. Months, days of the month and days of the year are
//! counted from 0, as JavaScript does and CEL took over; `getDate` counts from 1.

use crate::error::EvalError;
use crate::functions::{Builtin, EvalResult, Functions};
use crate::time::{Civil, Timestamp};
use crate::types::Type;
use crate::value::Value;
use crate::zone;

pub(crate) fn declare(f: &mut Functions) {
    let accessors: [(&str, &str, Builtin); 10] = [
        ("getFullYear", "timestamp_to_year", |_, args| part(args, |_, c| c.year)),
        ("getMonth", "timestamp_to_month", |_, args| part(args, |_, c| c.month - 1)),
        ("getDayOfYear", "timestamp_to_day_of_year", |_, args| part(args, |_, c| c.day_of_year)),
        ("getDayOfMonth", "timestamp_to_day_of_month", |_, args| part(args, |_, c| c.day - 1)),
        ("getDate", "timestamp_to_day_of_month_1_based", |_, args| part(args, |_, c| c.day)),
        ("getDayOfWeek", "timestamp_to_day_of_week", |_, args| part(args, |_, c| c.weekday)),
        ("getHours", "timestamp_to_hours_tz", |_, args| part(args, |_, c| c.second_of_day / 3600)),
        ("getMinutes", "timestamp_to_minutes", |_, args| part(args, |_, c| c.second_of_day / 60 % 60)),
        ("getSeconds", "timestamp_to_seconds", |_, args| part(args, |_, c| c.second_of_day % 60)),
        ("getMilliseconds", "timestamp_to_milliseconds", |_, args| {
            part(args, |time, _| i64::from(time.nanos / 1_000_000))
        }),
    ];
    for (name, id, run) in accessors {
        f.member(name, id, [Type::Timestamp], Type::Int, run);
        f.member(name, &format!("{id}_with_tz"), [Type::Timestamp, Type::String], Type::Int, run);
    }
    f.member("getHours", "duration_to_hours", [Type::Duration], Type::Int, |_, args| {
        whole(args, 3_600_000_000_000)
    });
    f.member("getMinutes", "duration_to_minutes", [Type::Duration], Type::Int, |_, args| {
        whole(args, 60_000_000_000)
    });
    f.member("getSeconds", "duration_to_seconds", [Type::Duration], Type::Int, |_, args| {
        whole(args, 1_000_000_000)
    });
    f.member("getMilliseconds", "duration_to_milliseconds", [Type::Duration], Type::Int, |_, args| {
        whole(args, 1_000_000)
    });
}

fn part<'a>(args: &[Value<'a>], read: fn(&Timestamp, Civil) -> i64) -> EvalResult<'a> {
    let (time, offset) = match args {
        [Value::Timestamp(time)] => (time, 0),
        [Value::Timestamp(time), Value::String(name)] => (time, zone::offset_s(name, time.seconds)?),
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(Value::Int(read(time, time.civil(offset))))
}

fn whole<'a>(args: &[Value<'a>], unit_nanos: i64) -> EvalResult<'a> {
    match args {
        [Value::Duration(duration)] => Ok(Value::Int(duration.nanos / unit_nanos)),
        _ => Err(EvalError::no_such_overload()),
    }
}
