//! Expressions of device selectors: they are compiled when they are written.
//!
//! An expression sees one device: `device.driver`, `device.attributes["domain"].name`, `device.capacity["domain"].name` and
//! `device.allowMultipleAllocations`.

use std::sync::{Arc, LazyLock};

use orlop_cel::{Env, Library, MessageType, Sizes, Type};

use super::{
    ATTRIBUTE_TEXT_LENGTH_MAX, ATTRIBUTES_AND_CAPACITIES_MAX, DRIVER_LENGTH_MAX, IDENTIFIER_LENGTH_MAX,
};

/// Minor version of Kubernetes whose libraries new expressions may use: the one before the served one.
const MINOR: u32 = 36;
const COST_MAX: u64 = 1_000_000;

static ENV: LazyLock<Env> = LazyLock::new(|| {
    let by_domain = |of: Type| Type::map(Type::String, Type::map(Type::String, of));
    let fields = [
        ("driver", Type::String),
        ("attributes", by_domain(Type::Dyn)),
        ("capacity", by_domain(Type::Opaque("kubernetes.Quantity"))),
        ("allowMultipleAllocations", Type::Bool),
    ];
    let fields = fields.map(|(name, declared)| (name.to_owned(), declared)).to_vec();
    let device = MessageType { name: "kubernetes.DRADevice".to_owned(), fields: Some(fields) };
    let device = Type::Message(Arc::new(device));
    Env::kubernetes(MINOR).library(Library::Bindings).sized_variable("device", device, sizes()).build()
});

/// Largest sizes of the parts of a device.
fn sizes() -> Sizes {
    let entries = ATTRIBUTES_AND_CAPACITIES_MAX as u64;
    let domain = || Sizes::scalar(DRIVER_LENGTH_MAX as u64);
    let by_domain = |value: Sizes| {
        let by_name = Sizes::map(entries, Sizes::scalar(IDENTIFIER_LENGTH_MAX as u64), value);
        Sizes::map(entries, domain(), by_name)
    };
    Sizes::object([
        ("driver", domain()),
        ("attributes", by_domain(Sizes::scalar(ATTRIBUTE_TEXT_LENGTH_MAX as u64))),
        ("capacity", by_domain(Sizes::scalar(0))),
        ("allowMultipleAllocations", Sizes::scalar(1)),
    ])
}

/// Problem of an expression.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// Does not compile, or to another type; in Kubernetes' words.
    Invalid(String),
    /// Its evaluation could cost more than the limit.
    TooComplex,
}

/// Compiles an expression, and returns its problem.
pub(super) fn problem(expression: &str) -> Option<Problem> {
    let program = match ENV.compile(expression) {
        Ok(program) => program,
        Err(errors) => return Some(Problem::Invalid(format!("compilation failed: {errors}"))),
    };
    match program.result_type() {
        // The type of an attribute is known only for a device.
        Type::Bool | Type::Dyn => (program.estimate().max > COST_MAX).then_some(Problem::TooComplex),
        other => Some(Problem::Invalid(format!("must evaluate to bool or the unknown type, not {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_see_one_device() {
        for good in [
            "device.driver == 'dra.example.com'",
            "device.attributes['dra.example.com'].model == 'a'",
            "device.attributes['dra.example.com'].enabled",
            "device.capacity['dra.example.com'].memory.compareTo(quantity('40Gi')) >= 0",
            "device.allowMultipleAllocations == true",
        ] {
            assert_eq!(problem(good), None, "{good}");
        }
        for (bad, expected) in [
            ("device.driver", "must evaluate to bool or the unknown type, not string"),
            ("device.nothing", "undefined field 'nothing'"),
            ("device.driver == 1", "found no matching overload for '_==_'"),
            ("object.x", "undeclared reference to 'object'"),
            ("device.driver ==", "Syntax error"),
        ] {
            let Some(Problem::Invalid(problem)) = problem(bad) else { panic!("{bad} is valid") };
            assert!(problem.contains(expected), "{bad}: {problem}");
        }
    }

    /// The estimates are those of Kubernetes 1.37's compiler of device selectors.
    #[test]
    fn costs_are_estimated_from_the_sizes_of_devices() {
        let cost = |expression: &str| ENV.estimate(expression).unwrap().max;
        for (expression, expected) in [
            ("device.driver == ''", 2),
            ("device.driver == 'dra.example.com'", 4),
            ("device.attributes['dra.example.com'].name", 4),
            ("cel.bind(dra, device.attributes['dra.example.com'], dra.name)", 15),
            ("'dra.example.com' in device.attributes", 3),
            ("device.attributes['dra.example.com'].name == 'fish'", 5),
            ("device.attributes['dra.example.com'].name.isGreaterThan(semver('0.0.1'))", 6),
            ("device.capacity['dra.example.com'].name.isGreaterThan(quantity('1Ki'))", 6),
            ("device.attributes.exists_one(x, x == 'dra.example.com')", 164),
            ("device.attributes['dra.example.com'].exists_one(x, x == 'services')", 133),
            ("device.capacity.exists_one(x, x == 'dra.example.com')", 164),
            ("device.attributes['dra.example.com'].services.split('example').size() >= 2", 19),
            ("device.attributes['dra.example.com'].services.matches('[^a]?sym')", 18),
            ("device.allowMultipleAllocations == true", 3),
        ] {
            assert_eq!(cost(expression), expected, "{expression}");
        }
        let list = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
        let nested = ["a", "b", "c", "d", "e", "f", "g"]
            .iter()
            .rfold("true".to_owned(), |body, name| format!("{list}.all({name}, {body})"));
        assert_eq!(problem(&nested), Some(Problem::TooComplex));
    }
}
