//! Expressions of device selectors: they are compiled when they are written.
//!
//! An expression sees one device: `device.driver`, `device.attributes["domain"].name`, `device.capacity["domain"].name` and
//! `device.allowMultipleAllocations`.

use std::sync::{Arc, LazyLock};

use orlop_cel::{Env, MessageType, Type};

/// Minor version of Kubernetes whose libraries new expressions may use: the one before the served one.
const MINOR: u32 = 36;

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
    Env::kubernetes(MINOR).variable("device", Type::Message(Arc::new(device))).build()
});

/// Compiles an expression, and returns the problem in Kubernetes' words.
pub(super) fn problem(expression: &str) -> Option<String> {
    match ENV.compile(expression) {
        Err(errors) => Some(format!("compilation failed: {errors}")),
        // The type of an attribute is known only for a device.
        Ok(program) => match program.result_type() {
            Type::Bool | Type::Dyn => None,
            other => Some(format!("must evaluate to bool or the unknown type, not {other}")),
        },
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
            let problem = problem(bad).unwrap();
            assert!(problem.contains(expected), "{bad}: {problem}");
        }
    }
}
