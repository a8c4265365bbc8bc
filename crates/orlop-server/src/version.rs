//! Which version of Kubernetes' API this is.

use serde_json::{Value, json};

/// The answer to `/version`. The numbers are those of the API served, which is what clients decide by.
pub(crate) fn version() -> Value {
    json!({
        "major": "1",
        "minor": "37",
        "gitVersion": concat!("v1.37.0+orlop-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "emulationMajor": "1",
        "emulationMinor": "37",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36",
        "platform": concat!("linux/", "amd64"),
    })
}
