//! An image is named by its id alone: never by a reference, which may mean another image tomorrow.

use events::spec::ImageDigest;

#[test]
fn only_a_whole_lower_case_digest_names_an_image() {
    let hex = "0123456789abcdef".repeat(4);
    let digest: ImageDigest = format!("sha256:{hex}").parse().unwrap();
    assert_eq!(digest.as_str(), format!("sha256:{hex}"));
    assert_eq!(serde_json::to_string(&digest).unwrap(), format!("\"sha256:{hex}\""));
    for text in [
        String::new(),
        hex.clone(),
        "leasehold/execution:dev".to_owned(),
        format!("leasehold/execution@sha256:{hex}"),
        format!("sha512:{hex}"),
        format!("SHA256:{hex}"),
        format!("sha256:{}", &hex[1..]),
        format!("sha256:{hex}0"),
        format!("sha256:{}", hex.to_uppercase()),
        format!("sha256:{}g", &hex[1..]),
        format!(" sha256:{hex}"),
        format!("sha256:{hex}\n"),
    ] {
        assert!(text.parse::<ImageDigest>().is_err(), "{text:?}");
        assert!(serde_json::from_value::<ImageDigest>(serde_json::json!(text)).is_err(), "{text:?}");
    }
}
