//! Mathematics: extremes, rounding, signs, bits.

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::types::Type;
use crate::value::{Value, compare};

pub(crate) fn declare(f: &mut Functions) {
    extremes(f);
    doubles(f);
    signs(f);
    bits(f);
}

fn extremes(f: &mut Functions) {
    let numbers = [Type::Double, Type::Int, Type::Uint];
    for (name, id, run) in [("math.@min", "min", least as Run), ("math.@max", "max", greatest as Run)] {
        for one in &numbers {
            f.global(name, &format!("math_@{id}_{one}"), [one.clone()], one.clone(), run);
            f.global(name, &format!("math_@{id}_list_{one}"), [Type::list(one.clone())], one.clone(), run);
            for other in &numbers {
                let result = if one == other { one.clone() } else { Type::Dyn };
                let id = format!("math_@{id}_{one}_{other}");
                f.global(name, &id, [one.clone(), other.clone()], result, run);
            }
        }
    }
}

type Run = for<'a> fn(CallContext<'_>, &[Value<'a>]) -> EvalResult<'a>;

fn least<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    extreme(args, Ordering::Greater, "math.@min")
}

fn greatest<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    extreme(args, Ordering::Less, "math.@max")
}

/// The first number that no other beats; `beaten` is how the best so far compares to a better one.
fn extreme<'a>(args: &[Value<'a>], beaten: Ordering, name: &str) -> EvalResult<'a> {
    let numbers = match args {
        [Value::List(list)] => list.to_values()?,
        args => args.to_vec(),
    };
    let mut numbers = numbers.into_iter();
    let Some(mut best) = numbers.next() else {
        return Err(EvalError::Failed(format!("{name}(list) argument must not be empty")));
    };
    for number in numbers {
        if compare(&best, &number).map_err(|error| EvalError::Failed(format!("{error}: {name}")))? == beaten {
            best = number;
        }
    }
    match best {
        Value::Int(_) | Value::Uint(_) | Value::Double(_) => Ok(best),
        _ => Err(EvalError::Failed(format!("no such overload: {name}"))),
    }
}

fn doubles(f: &mut Functions) {
    let d = || [Type::Double];
    f.global("math.ceil", "math_ceil_double", d(), Type::Double, |_, args| double(args, f64::ceil));
    f.global("math.floor", "math_floor_double", d(), Type::Double, |_, args| double(args, f64::floor));
    f.global("math.round", "math_round_double", d(), Type::Double, |_, args| double(args, f64::round));
    f.global("math.trunc", "math_trunc_double", d(), Type::Double, |_, args| double(args, f64::trunc));
    f.global("math.isInf", "math_isInf_double", d(), Type::Bool, |_, args| test(args, f64::is_infinite));
    f.global("math.isNaN", "math_isNaN_double", d(), Type::Bool, |_, args| test(args, f64::is_nan));
    f.global("math.isFinite", "math_isFinite_double", d(), Type::Bool, |_, args| test(args, f64::is_finite));
    for (ty, id) in [(Type::Double, "double"), (Type::Int, "int"), (Type::Uint, "uint")] {
        f.global("math.sqrt", &format!("math_sqrt_{id}"), [ty], Type::Double, |_, args| match args {
            [Value::Double(value)] => Ok(Value::Double(value.sqrt())),
            [Value::Int(value)] => Ok(Value::Double((*value as f64).sqrt())),
            [Value::Uint(value)] => Ok(Value::Double((*value as f64).sqrt())),
            _ => Err(EvalError::no_such_overload()),
        });
    }
}

fn double<'a>(args: &[Value<'a>], map: fn(f64) -> f64) -> EvalResult<'a> {
    match args {
        [Value::Double(value)] => Ok(Value::Double(map(*value))),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn test<'a>(args: &[Value<'a>], test: fn(f64) -> bool) -> EvalResult<'a> {
    match args {
        [Value::Double(value)] => Ok(Value::Bool(test(*value))),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn signs(f: &mut Functions) {
    for (ty, id) in [(Type::Double, "double"), (Type::Int, "int"), (Type::Uint, "uint")] {
        f.global("math.abs", &format!("math_abs_{id}"), [ty.clone()], ty.clone(), |_, args| match args {
            [Value::Double(value)] => Ok(Value::Double(value.abs())),
            [Value::Int(value)] => {
                value.checked_abs().map(Value::Int).ok_or_else(|| EvalError::failed("integer overflow"))
            }
            [Value::Uint(value)] => Ok(Value::Uint(*value)),
            _ => Err(EvalError::no_such_overload()),
        });
        f.global("math.sign", &format!("math_sign_{id}"), [ty.clone()], ty, |_, args| match args {
            [Value::Double(value)] if *value == 0.0 || value.is_nan() => Ok(Value::Double(value.abs())),
            [Value::Double(value)] => Ok(Value::Double(value.signum())),
            [Value::Int(value)] => Ok(Value::Int(value.signum())),
            [Value::Uint(value)] => Ok(Value::Uint((*value).min(1))),
            _ => Err(EvalError::no_such_overload()),
        });
    }
}

fn bits(f: &mut Functions) {
    for (ty, id) in [(Type::Int, "int"), (Type::Uint, "uint")] {
        let two = || [ty.clone(), ty.clone()];
        f.global("math.bitAnd", &format!("math_bitAnd_{id}_{id}"), two(), ty.clone(), |_, args| {
            bitwise(args, |one, other| one & other)
        });
        f.global("math.bitOr", &format!("math_bitOr_{id}_{id}"), two(), ty.clone(), |_, args| {
            bitwise(args, |one, other| one | other)
        });
        f.global("math.bitXor", &format!("math_bitXor_{id}_{id}"), two(), ty.clone(), |_, args| {
            bitwise(args, |one, other| one ^ other)
        });
        f.global("math.bitNot", &format!("math_bitNot_{id}_{id}"), [ty.clone()], ty.clone(), |_, args| {
            match args {
                [Value::Int(value)] => Ok(Value::Int(!value)),
                [Value::Uint(value)] => Ok(Value::Uint(!value)),
                _ => Err(EvalError::no_such_overload()),
            }
        });
        let by = || [ty.clone(), Type::Int];
        f.global("math.bitShiftLeft", &format!("math_bitShiftLeft_{id}_int"), by(), ty.clone(), |_, args| {
            shift(args, "math.bitShiftLeft", u64::checked_shl)
        });
        f.global(
            "math.bitShiftRight",
            &format!("math_bitShiftRight_{id}_int"),
            by(),
            ty.clone(),
            |_, args| shift(args, "math.bitShiftRight", u64::checked_shr),
        );
    }
}

fn bitwise<'a>(args: &[Value<'a>], operation: fn(u64, u64) -> u64) -> EvalResult<'a> {
    match args {
        // The bits of a signed integer are those of the unsigned one.
        [Value::Int(one), Value::Int(other)] => Ok(Value::Int(operation(*one as u64, *other as u64) as i64)),
        [Value::Uint(one), Value::Uint(other)] => Ok(Value::Uint(operation(*one, *other))),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn shift<'a>(args: &[Value<'a>], name: &str, operation: fn(u64, u32) -> Option<u64>) -> EvalResult<'a> {
    let shifted = |value: u64, by: i64| {
        let by =
            u64::try_from(by).map_err(|_| EvalError::Failed(format!("{name}() negative offset: {by}")))?;
        // Shifting by the width or more leaves nothing.
        Ok(u32::try_from(by).ok().and_then(|by| operation(value, by)).unwrap_or(0))
    };
    match args {
        [Value::Int(value), Value::Int(by)] => {
            shifted(*value as u64, *by).map(|bits| Value::Int(bits as i64))
        }
        [Value::Uint(value), Value::Int(by)] => shifted(*value, *by).map(Value::Uint),
        _ => Err(EvalError::no_such_overload()),
    }
}
