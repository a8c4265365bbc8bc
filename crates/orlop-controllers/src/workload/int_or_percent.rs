//! Numbers that may be percentages.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Direction in which a fraction is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    Up,
    Down,
}

/// Returns the number, of `total` where it is a percentage. Zero for what is neither.
pub(crate) fn scaled(value: &IntOrString, total: i32, rounding: Rounding) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<i64>().ok());
            let product = percent.unwrap_or(0).saturating_mul(total.into());
            let scaled = match rounding {
                Rounding::Up => product.saturating_add(99).div_euclid(100),
                Rounding::Down => product.div_euclid(100),
            };
            i32::try_from(scaled).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_as_asked() {
        let percent = IntOrString::String("25%".to_owned());
        assert_eq!(scaled(&percent, 10, Rounding::Up), 3);
        assert_eq!(scaled(&percent, 10, Rounding::Down), 2);
        assert_eq!(scaled(&percent, 0, Rounding::Up), 0);
        assert_eq!(scaled(&IntOrString::Int(7), 3, Rounding::Up), 7);
        assert_eq!(scaled(&IntOrString::String("x".to_owned()), 3, Rounding::Up), 0);
    }
}
