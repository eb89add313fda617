//! Environment variable tiers: what a command sees, what is refused, what stops the service's start.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use policy::environment::check_request;
use policy::{EnvRefusal, Tier1Config, Tier1Fault, WorkspaceCwd, build_environment};
use proptest::prelude::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn build(request: &[(&str, &str)]) -> Result<BTreeMap<String, String>, EnvRefusal> {
    build_environment(&Tier1Config::default(), &map(request), &WorkspaceCwd::Root)
}

fn operator(pairs: &[(&str, &str)]) -> Result<Tier1Config, Vec<Tier1Fault>> {
    let names: Vec<String> = pairs.iter().map(|(name, _)| (*name).to_owned()).collect();
    let parent = map(pairs);
    Tier1Config::try_new(&names, |name| parent.get(name).map(OsString::from))
}

#[test]
fn without_request_and_operator_exactly_our_five_names() {
    let ours = [
        ("HOME", "/workspace"),
        ("LANG", "C.UTF-8"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("PWD", "/workspace"),
        ("TMPDIR", "/tmp"),
    ];
    assert_eq!(build(&[]), Ok(map(&ours)));
}

#[test]
fn pwd_is_the_working_directory() {
    let cwd = WorkspaceCwd::try_new("data/2026 é").expect("a plain path");
    let environment =
        build_environment(&Tier1Config::default(), &BTreeMap::new(), &cwd).expect("nothing asked");
    assert_eq!(environment["PWD"], "/workspace/data/2026 é");
    assert_eq!(environment["HOME"], "/workspace");
}

#[test]
fn values_are_kept_byte_for_byte() {
    for value in
        ["a\nb", "k=v=w", "  leading", "$HOME", "`id`", "\"'\\", "", "é\u{1f600}", "%s\u{7f}\u{1b}[0m"]
    {
        assert_eq!(build(&[("VALUE", value)]).expect("any text but NUL")["VALUE"], value);
    }
}

#[test]
fn odd_names_are_refused() {
    for name in ["", "A;B", "1A", "A B", "A=B", "A-B", "A.B", "$A", "A\n", "É", "A\0", "{A}", "BASH_FUNC_f%%"]
    {
        let refusal = build(&[(name, "v")]).expect_err(name);
        assert!(matches!(refusal, EnvRefusal::Name { .. }), "{name:?}: {refusal:?}");
    }
    for name in ["A", "_", "a1", "_1", "PYTHONSTARTUP", "LD_LIBRARY_PATH"] {
        assert!(build(&[(name, "v")]).is_ok(), "{name}");
    }
}

#[test]
fn credential_names_are_refused_in_any_case() {
    let names = [
        "AWS_REGION",
        "AWS_SECRET_ACCESS_KEY",
        "AZURE_CLIENT_ID",
        "DATABASE_URL",
        "MAIN_DATABASE_URL",
        "GITHUB_TOKEN",
        "TOKEN",
        "NPMTOKEN",
        "CLIENT_SECRET",
        "MY_SECRETS_FILE",
        "PGPASSWORD",
        "DB_PASSWORD_FILE",
        "MYSQL_PWD",
        "KEY",
        "OPENAI_API_KEY",
        "SSH_PRIVATE_KEY_PATH",
        "SSH_AUTH_SOCK",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SENTRY_DSN",
        "KUBECONFIG",
        "SESSION_COOKIE",
        "github_token",
        "Client_Secret",
    ];
    for name in names {
        let refusal = build(&[(name, "v")]).expect_err(name);
        assert_eq!(refusal, EnvRefusal::Credential { name: name.to_owned() });
        assert!(operator(&[(name, "v")]).is_err(), "the operator cannot pass {name} either");
    }
    for name in ["MAX_TOKENS", "MONKEY", "OLDPWD", "PASSENGERS", "AUTHOR", "KEYBOARD", "BYPASS"] {
        assert!(build(&[(name, "v")]).is_ok(), "{name} is no credential");
    }
}

#[test]
fn of_our_names_only_lang_and_tmpdir_can_be_replaced() {
    let environment = build(&[("LANG", "de_DE.UTF-8"), ("TMPDIR", "/workspace/tmp")]).expect("both may");
    assert_eq!(
        (environment["LANG"].as_str(), environment["TMPDIR"].as_str()),
        ("de_DE.UTF-8", "/workspace/tmp")
    );
    for name in ["HOME", "PWD", "PATH", "LEASEHOLD_BRIDGE"] {
        assert_eq!(build(&[(name, "v")]), Err(EnvRefusal::Fixed { name: name.to_owned() }));
    }
}

#[test]
fn nul_and_proxy_credentials_are_refused_without_showing_the_value() {
    assert_eq!(build(&[("A", "x\0y")]), Err(EnvRefusal::Nul { name: "A".to_owned() }));
    let refusal = build(&[("https_proxy", "http://user:hunter2@proxy.example.com")]).expect_err("a user");
    assert_eq!(refusal.name(), "https_proxy");
    assert!(!format!("{refusal} {refusal:?}").contains("hunter2"));
}

#[test]
fn a_long_name_is_cut_in_the_refusal() {
    let refusal = build(&[(&"é".repeat(500), "v")]).expect_err("not ASCII");
    assert_eq!(refusal.name().chars().count(), 64);
}

#[test]
fn the_operator_passes_reviewed_names_with_their_values() {
    let pairs = [
        ("HTTP_PROXY", "http://proxy.example.com:3128"),
        ("no_proxy", "localhost,.example.com"),
        ("LANG", "en_GB.UTF-8"),
        ("LC_ALL", "C"),
        ("TZ", "Europe/Vienna"),
    ];
    let tier1 = operator(&pairs).expect("all reviewed");
    let environment =
        build_environment(&tier1, &map(&[("TZ", "UTC")]), &WorkspaceCwd::Root).expect("a request may choose");
    assert_eq!(environment["HTTP_PROXY"], "http://proxy.example.com:3128");
    assert_eq!(environment["no_proxy"], "localhost,.example.com");
    assert_eq!(environment["LANG"], "en_GB.UTF-8", "the operator's value stands above ours");
    assert_eq!(environment["TZ"], "UTC", "the request's value stands above the operator's");
    assert_eq!(environment["PATH"], "/usr/local/bin:/usr/bin:/bin");
}

#[test]
fn all_start_up_faults_are_told_at_once() {
    let faults = operator(&[
        ("FTP_PROXY", "x"),
        ("HTTPS_PROXY", "http://user@proxy.example.com"),
        ("Http_Proxy", "x"),
        ("LC_", "x"),
        ("LC_API_KEY", "x"),
        ("PATH", "x"),
        ("TZ", "UTC"),
    ])
    .expect_err("six faults");
    let name = |name: &str| Tier1Fault::Name { name: name.to_owned() };
    assert_eq!(
        faults,
        [
            name("FTP_PROXY"),
            Tier1Fault::ProxyCredentials { name: "HTTPS_PROXY".to_owned() },
            name("Http_Proxy"),
            name("LC_"),
            name("LC_API_KEY"),
            name("PATH"),
        ]
    );
}

#[test]
fn a_listed_name_without_a_value_is_left_out_and_one_that_is_not_text_is_a_fault() {
    let names = ["TZ".to_owned(), "LANG".to_owned()];
    assert_eq!(Tier1Config::try_new(&names, |_| None), Ok(Tier1Config::default()));
    let broken = Tier1Config::try_new(&names, |name| (name == "TZ").then(|| OsString::from_vec(vec![0xff])));
    assert_eq!(broken, Err(vec![Tier1Fault::Value { name: "TZ".to_owned() }]));
}

proptest! {
    /// Whatever the service's own environment holds, nothing of it that is not reviewed reaches a command.
    #[test]
    fn a_polluted_parent_stays_outside(
        polluted in proptest::collection::btree_map("[A-Z_]{1,12}", "canary-[a-z]{8}", 0..20),
    ) {
        let names = ["TZ".to_owned(), "LC_ALL".to_owned(), "LC_CTYPE".to_owned()];
        let tier1 = Tier1Config::try_new(&names, |name| polluted.get(name).map(OsString::from)).expect("reviewed names");
        let environment = build_environment(&tier1, &BTreeMap::new(), &WorkspaceCwd::Root).expect("nothing asked");
        for (name, value) in &environment {
            prop_assert!(names.contains(name) || !value.contains("canary"), "{name} leaked");
        }
    }

    /// What is accepted can be handed to execve as it is: name without `=` or NUL, value without NUL, both unchanged.
    #[test]
    fn accepted_variables_are_unchanged(name in "\\PC{0,12}", value in any::<String>()) {
        if check_request(&name, &value).is_ok() {
            prop_assert!(!name.is_empty() && name.is_ascii() && !name.contains(['=', '\0']));
            prop_assert!(!value.contains('\0'));
            prop_assert_eq!(&build(&[(&name, &value)]).expect("accepted")[&name], &value);
        } else {
            prop_assert!(build(&[(&name, &value)]).is_err());
        }
    }
}
