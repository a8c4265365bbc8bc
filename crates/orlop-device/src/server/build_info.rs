//! What this program was built from.

/// The version of Orlop.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from.
pub(crate) const REVISION: &str = env!("ORLOP_REVISION");
/// When that commit was made: builds of one commit are alike, whenever they are made.
pub(crate) const BUILD_DATE: &str = env!("ORLOP_BUILD_DATE");
const RUSTC: &str = env!("ORLOP_RUSTC");

/// `linux/amd64`, as platforms are called in this world.
fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}

/// The labels of the build metric. `goversion` is there because dashboards ask for it; it says what compiled
/// the program instead.
pub(crate) fn labels() -> Vec<(&'static str, String)> {
    vec![
        ("version", VERSION.to_owned()),
        ("revision", REVISION.to_owned()),
        ("build_date", BUILD_DATE.to_owned()),
        ("goversion", RUSTC.to_owned()),
        ("compiler", "rustc".to_owned()),
        ("platform", platform()),
    ]
}

/// What `/version` says.
pub(crate) fn json() -> String {
    let (major, rest) = VERSION.split_once('.').unwrap_or((VERSION, ""));
    let minor = rest.split('.').next().unwrap_or_default();
    serde_json::json!({
        "major": major,
        "minor": minor,
        "gitVersion": format!("v{VERSION}"),
        "gitCommit": REVISION,
        "buildDate": BUILD_DATE,
        "goVersion": RUSTC,
        "compiler": "rustc",
        "platform": platform(),
    })
    .to_string()
}
